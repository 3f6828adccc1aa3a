package solver

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir/solver/lp"
)

// hostile numbers abort CLP, hang it, or make it answer nonsense.
var hostile = []float64{
	math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64,
	math.SmallestNonzeroFloat64, -1, 0, 1e-300, 1e300, 1e25, 1e12, 1e-12, math.Copysign(0, -1),
}

// Whatever number stands wherever in a state, there is a plan that keeps its promises
// or an error; and CLP is never shown what it cannot bear.
func TestHostileNumbers(t *testing.T) {
	refused, planned := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := states.Draw(t, "state")
		var numbers []func(float64)
		gather(reflect.ValueOf(s).Elem(), &numbers)
		for range rapid.IntRange(1, 3).Draw(t, "numbers") {
			rapid.SampledFrom(numbers).Draw(t, "where")(rapid.SampledFrom(hostile).Draw(t, "number"))
		}
		plan, err := Plan(s, func(p *lp.Program) (*lp.Solution, error) {
			if err := p.Validate(); err != nil {
				return nil, err
			}
			return solve(p)
		})
		if err != nil {
			refused++
			return
		}
		planned++
		for i := range plan.Routes {
			sum := 0.0
			for _, share := range plan.Routes[i].Shares {
				sum += share.Share
			}
			if !(math.Abs(sum-1) < 1e-9) {
				t.Errorf("%s at %s: shares sum to %v", plan.Routes[i].Class, plan.Routes[i].FrontEnd, sum)
			}
		}
	})
	if refused == 0 || planned == 0 {
		t.Errorf("%d states refused, %d planned: too one-sided a test", refused, planned)
	}
}

// gather lists a setter for every number in a value, those in maps included.
func gather(v reflect.Value, out *[]func(float64)) {
	switch v.Kind() {
	case reflect.Float64:
		*out = append(*out, v.SetFloat)
	case reflect.Pointer:
		if !v.IsNil() {
			gather(v.Elem(), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				gather(f, out)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			gather(v.Index(i), out)
		}
	case reflect.Map:
		gatherMap(v, out)
	}
}

// gatherMap sets numbers in a copy of each entry, and the entry to that.
func gatherMap(m reflect.Value, out *[]func(float64)) {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range keys {
		entry := reflect.New(m.Type().Elem()).Elem()
		entry.Set(m.MapIndex(key))
		var inner []func(float64)
		gather(entry, &inner)
		for _, set := range inner {
			*out = append(*out, func(x float64) {
				set(x)
				m.SetMapIndex(key, entry)
			})
		}
	}
}
