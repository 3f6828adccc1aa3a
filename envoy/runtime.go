package envoy

import (
	"math"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/fleet"
)

// Runtime keys of a class. Shed fractions are read by the routes that act while
// weir-extproc is dead; the budgets by Envoy's retries, at once and without a
// change of the cluster.
func shedKey(c fleet.ClassID) string { return "weir.shed." + string(c) }

func budgetKey(c fleet.ClassID) string {
	return "circuit_breakers." + string(c) + ".default.retry_budget.budget_percent"
}

func floorKey(c fleet.ClassID) string {
	return "circuit_breakers." + string(c) + ".default.retry_budget.min_retry_concurrency"
}

// million is the denominator of fractions in the runtime.
const million = 1_000_000

func encodeRuntime(v *fleet.View) *runtimev3.Runtime {
	fields := map[string]*structpb.Value{}
	for _, c := range v.Classes {
		fields[shedKey(c.ID)] = fraction(1 - c.Admitted)
		fields[budgetKey(c.ID)] = structpb.NewNumberValue(c.Retry.Percent)
		fields[floorKey(c.ID)] = structpb.NewNumberValue(float64(c.Retry.Floor))
	}
	return &runtimev3.Runtime{Name: RuntimeName, Layer: &structpb.Struct{Fields: fields}}
}

// fraction is a FractionalPercent as the runtime reads it. A bare number would be
// taken for a percentage.
func fraction(x float64) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"numerator":   structpb.NewNumberValue(math.Round(x * million)),
		"denominator": structpb.NewStringValue("MILLION"),
	}})
}

func decodeRuntime(r *runtimev3.Runtime, c *fleet.ViewClass) {
	fields := r.GetLayer().GetFields()
	shed := fields[shedKey(c.ID)].GetStructValue().GetFields()["numerator"].GetNumberValue()
	c.Admitted = 1 - shed/million
	c.Retry = fleet.RetryBudget{
		Percent: fields[budgetKey(c.ID)].GetNumberValue(),
		Floor:   uint32(fields[floorKey(c.ID)].GetNumberValue()),
	}
}
