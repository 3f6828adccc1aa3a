package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// within parses a value and holds it to a range.
func within[T cmp.Ordered](parse func(string) (T, *mistake), s string, lo, hi T, show func(T) string) (T, *mistake) {
	v, bad := parse(s)
	if bad != nil {
		return v, bad
	}
	if v < lo || v > hi {
		return v, mistakef(fmt.Sprintf("keep it between %s and %s", show(lo), show(hi)), "%s is out of range", s)
	}
	return v, nil
}

func suffixed(unit string) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + unit }
}

// quantity is a decimal number and its unit; NaN, Inf, exponents and hexadecimal
// have no place in a fleet file.
var quantity = regexp.MustCompile(`^([-+]?[0-9]+(?:\.[0-9]+)?) ?([A-Za-zµ%/]*)$`)

// split takes a quantity apart. The example completes the remedies.
func split(s, example string) (number float64, unit string, bad *mistake) {
	m := quantity.FindStringSubmatch(s)
	if m == nil {
		return 0, "", mistakef("write it like "+example, "%q is not a number with a unit", s)
	}
	number, err := strconv.ParseFloat(m[1], 64)
	switch {
	case err != nil:
		return 0, "", mistakef("write it like "+example, "%s is too large", s)
	case strings.HasPrefix(s, "-") && number != 0:
		return 0, "", mistakef("write it like "+example, "%s is negative", s)
	}
	return number, m[2], nil
}

// scaled parses a quantity whose unit multiplies it.
func scaled(s, example string, units map[string]float64) (float64, *mistake) {
	number, unit, bad := split(s, example)
	if bad != nil {
		return 0, bad
	}
	if unit == "" {
		return 0, mistakef("write it like "+example, "%s has no unit", s)
	}
	factor, ok := units[unit]
	if !ok {
		return 0, mistakef("write it like "+example, "%q has an unknown unit", s)
	}
	return number * factor, nil
}

func parseRate(s string) (float64, *mistake) {
	return scaled(s, "90 rps or 5400 rpm", map[string]float64{"rps": 1, "rpm": 1.0 / 60})
}

func parsePercent(s string) (float64, *mistake) {
	return scaled(s, "10%", map[string]float64{"%": 1})
}

func parseSize(s string) (int64, *mistake) {
	v, bad := scaled(s, "32MiB", map[string]float64{
		"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	})
	if bad == nil && v >= 1<<62 {
		return 0, mistakef("write it like 32MiB", "%s is too large", s)
	}
	return int64(v), bad
}

func formatSize(v int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v >= u.bytes && v%u.bytes == 0 {
			return strconv.FormatInt(v/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10) + "B"
}

func formatDuration(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// parseDuration takes Go's durations, and a space before the unit.
func parseDuration(s string) (time.Duration, *mistake) {
	if _, unit, bad := split(s, "200ms"); bad == nil && unit == "" {
		return 0, mistakef(fmt.Sprintf("write %sms or %ss", s, s), "%s has no unit", s)
	}
	v, err := time.ParseDuration(strings.Replace(s, " ", "", 1))
	switch {
	case err != nil:
		return 0, mistakef("write it like 200ms, 2s or 1m30s", "%q is not a duration", s)
	case v < 0:
		return 0, mistakef("write it like 200ms", "%s is negative", s)
	}
	return v, nil
}

func parseNumber(s string) (float64, *mistake) {
	number, unit, bad := split(s, "4 or 0.5")
	if bad == nil && unit != "" {
		return 0, mistakef("write the number alone", "%q has a unit", s)
	}
	return number, bad
}

func parseInteger(s string) (int, *mistake) {
	v, err := strconv.Atoi(s)
	if err != nil {
		return 0, mistakef("write it like 10", "%q is not a whole number", s)
	}
	return v, nil
}
