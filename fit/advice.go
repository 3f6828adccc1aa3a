package fit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// enoughLoads refuses fewer levels than a curve needs.
func enoughLoads(levels []level, points []Point) error {
	if len(levels) >= minLoads {
		return nil
	}
	left := 0
	for _, p := range points {
		if p.Fate != Used {
			left++
		}
	}
	beside := ""
	if left > 0 {
		beside = fmt.Sprintf(" (%d more runs were overloaded, failing or far beside the rest)", left)
	}
	return fmt.Errorf("%d loads that the engine kept up with are too few for a curve%s: measure at %d or more, from nearly idle to where TTFT breaks its target",
		len(levels), beside, minLoads+2)
}

func tooTight(targetSeconds, unloadedSeconds float64) error {
	return fmt.Errorf("the TTFT target %s is not above the TTFT without load, %s: no load keeps to it; give a target above that",
		seconds(targetSeconds), seconds(unloadedSeconds))
}

func notReached(targetSeconds, lastRps, lastSeconds float64) error {
	return fmt.Errorf("the capacity is not in sight: at the highest load, %s rps, TTFT is %s of a target of %s, and throughput still rises; measure higher too: at %s rps",
		number(lastRps), seconds(lastSeconds), seconds(targetSeconds), steps(lastRps*1.2, lastRps*2, 4))
}

func tooNarrow(firstRps, lastRps, capacityRps float64) error {
	return fmt.Errorf("the loads from %s to %s rps are less than half of the capacity of %s rps: measure the rest too: at %s rps",
		number(firstRps), number(lastRps), number(capacityRps), steps(capacityRps/10, capacityRps*0.95, 6))
}

func tooSlow(capacityRps float64) error {
	return fmt.Errorf("a capacity of %s rps is less than a fleet file takes, %s rps; look at the loads' unit", number(capacityRps), number(leastCapacityRps))
}

// steps lists loads.
func steps(from, to float64, n int) string {
	var list []string
	for i := range n {
		list = append(list, number(from+(to-from)*float64(i)/float64(n-1)))
	}
	return strings.Join(list, ", ")
}

// notes are what a reader should know before using the profile.
func (r *Result) notes() {
	note := func(format string, values ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, values...)) }
	c := r.Profile.CapacityRps
	first, last := r.levels[0].load, r.levels[len(r.levels)-1].load
	switch r.Bound {
	case ByExtrapolation:
		note("the capacity lies above the highest load measured, %s rps, and is a guess: measure up to %s rps", number(last), number(1.1*c))
	case BySaturation, ByTarget:
		if last < 0.85*c {
			note("nothing was measured between %s rps and the capacity, %s rps, where %s: measure at %s rps", number(last), number(c), r.boundText(), steps(last+(c-last)/3, c-(c-last)/3, 2))
		}
	}
	if first > 0.2*c {
		note("the lowest load is %.0f %% of the capacity: the TTFT without load is extrapolated; measure with one client too", 100*first/c)
	}
	if wide := (r.CapacityRps.High - r.CapacityRps.Low) / c; wide > 0.2 {
		note("the capacity is uncertain by %.0f %%: measure longer, and more loads near %s rps", 100*wide/2, number(c))
	}
	if len(r.Profile.TBT) == 0 {
		note("TBT is not known at %d loads or more: the profile has none", minLoads)
	}
	r.noteFates(note)
}

func (r *Result) noteFates(note func(string, ...any)) {
	few := 0
	for _, p := range r.Points {
		switch p.Fate {
		case Outlier:
			note("left out, its TTFT is far beside the rest (%+.0f %%; a cold start?): %s", 100*p.TTFTResidual, p.Source)
		case Failing:
			note("left out, %.0f of %.0f requests failed: %s", p.Failed, p.Failed+p.completed(), p.Source)
		case Burst:
			note("left out, no more was sent at once than the engine takes at once: %s", p.Source)
		case Used:
			if p.Requests > 0 && p.Requests < 50 {
				few++
			}
		}
	}
	if few > 0 {
		note("%d runs have fewer than 50 requests: measure longer", few)
	}
}

// number writes a value with the digits that matter, and never with an exponent,
// which a fleet file does not take.
func number(v float64) string { return digits(v, 3) }

func digits(v float64, significant int) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	decimals := max(0, significant-1-int(math.Floor(math.Log10(math.Abs(v)))))
	text := fmt.Sprintf("%.*f", decimals, v)
	if decimals > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func seconds(v float64) string { return digits(1000*v, 4) + "ms" }

// rounded has four digits that matter. Printed it may have an exponent, so that it is
// for values that are not even possible.
func rounded(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil { // beyond all numbers, by the rounding
		return v
	}
	return r
}
