package config

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// row is one text and what becomes of it: a value, or a mistake where want is "".
type row struct{ text, want string }

func run[T any](t *testing.T, parse func(string) (T, *mistake), rows []row) {
	t.Helper()
	for _, r := range rows {
		v, bad := parse(r.text)
		got := fmt.Sprint(v)
		if bad != nil {
			got = ""
			if bad.what == "" || bad.remedy == "" {
				t.Errorf("%q: mistake %+v lacks words", r.text, bad)
			}
		}
		if got != r.want {
			t.Errorf("%q: got %q, want %q (%+v)", r.text, got, r.want, bad)
		}
	}
}

func TestParseDuration(t *testing.T) {
	run(t, parseDuration, []row{
		{"200ms", "200ms"},
		{"200 ms", "200ms"},
		{"1m30s", "1m30s"},
		{"1.5s", "1.5s"},
		{"0ms", "0s"},
		{"-0ms", "0s"},
		{"2", ""},
		{"0", ""},
		{"-2ms", ""},
		{"2 m s", ""},
		{"2 min", ""},
		{"ms", ""},
		{"9223372036854775808ns", ""},
		{"1e3ms", ""},
		{"inf", ""},
	})
}

func TestParseRate(t *testing.T) {
	run(t, parseRate, []row{
		{"90 rps", "90"},
		{"90rps", "90"},
		{"+90 rps", "90"},
		{"0.25 rps", "0.25"},
		{"5400 rpm", "90"},
		{"0 rps", "0"},
		{"90", ""},
		{"-1 rps", ""},
		{"90 RPS", ""},
		{"90  rps", ""},
		{"0x10 rps", ""},
		{"1e3 rps", ""},
		{"NaN rps", ""},
		{"Inf rps", ""},
		{"1_000 rps", ""},
		{".5 rps", ""},
		{"", ""},
	})
}

func TestParsePercent(t *testing.T) {
	run(t, parsePercent, []row{{"10%", "10"}, {"0.1 %", "0.1"}, {"0%", "0"}, {"10", ""}, {"-1%", ""}, {"10%%", ""}, {"%", ""}})
}

func TestParseSize(t *testing.T) {
	run(t, parseSize, []row{
		{"32MiB", "33554432"},
		{"1.5 KiB", "1536"},
		{"10B", "10"},
		{"1MB", "1000000"},
		{"1GiB", "1073741824"},
		{"32", ""},
		{"32M", ""},
		{"-1B", ""},
		{"9999999999 GiB", ""},
	})
}

func TestParseNumbers(t *testing.T) {
	run(t, parseNumber, []row{{"4", "4"}, {"0.5", "0.5"}, {"4x", ""}, {"-1", ""}, {"1e3", ""}, {".nan", ""}})
	run(t, parseInteger, []row{{"4", "4"}, {"-4", "-4"}, {"4.0", ""}, {"99999999999999999999", ""}, {"0x4", ""}})
}

func TestWithinShowsItsRange(t *testing.T) {
	_, bad := within(parseDuration, "3h", time.Second, time.Hour, formatDuration)
	if want := (mistake{"3h is out of range", "keep it between 1s and 1h"}); bad == nil || *bad != want {
		t.Errorf("got %+v, want %+v", bad, want)
	}
}

// What is shown as a limit can be written as a value.
func TestFormatsParseBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<40).Draw(t, "size")
		if got, bad := parseSize(formatSize(size)); bad != nil || got != size {
			t.Errorf("size %d: %s is %d (%+v)", size, formatSize(size), got, bad)
		}
		d := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "duration"))
		if got, bad := parseDuration(formatDuration(d)); bad != nil || got != d {
			t.Errorf("duration %d: %s is %d (%+v)", d, formatDuration(d), got, bad)
		}
	})
}

// No text is a number that is not finite and positive, or an unexplained mistake.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"90 rps", "-0%", "1e999", "0x1p-2", "NaN", "32MiB", "5µs", "٣ rps"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for name, parse := range map[string]func(string) (float64, *mistake){
			"rate": parseRate, "percent": parsePercent, "number": parseNumber,
		} {
			if v, bad := parse(s); bad == nil && (v < 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
				t.Errorf("%s %s is %v", name, strconv.Quote(s), v)
			}
		}
		if d, bad := parseDuration(s); bad == nil && d < 0 {
			t.Errorf("duration %q is %v", s, d)
		}
		if n, bad := parseSize(s); bad == nil && n < 0 {
			t.Errorf("size %q is %d", s, n)
		}
	})
}
