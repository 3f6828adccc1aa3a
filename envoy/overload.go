package envoy

import (
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	"google.golang.org/protobuf/proto"
)

// Defaults of what one Envoy may use.
const (
	// Room for ten thousand requests in flight with bodies of 100 KiB, or a hundred
	// bodies of 32 MiB on their way: Envoy holds a body for retries until the answer
	// begins, and for a moment twice, while weir-extproc reads it.
	DefaultMaxHeapBytes = 4 << 30
	// A client's connection takes some 30 KiB and a file descriptor.
	DefaultMaxConnections = 50_000
)

// heap is the name of the monitor that the actions heed.
const heap = "envoy.resource_monitors.fixed_heap"

// Parts of the heap at which something is done, the mildest first.
const (
	shrinkAt      = 0.85
	refuseAt      = 0.90
	resetFrom     = 0.95
	closeAt       = 0.97
	resetAllAt    = 0.99
	leastResetLog = 20 // streams that hold less than 1 MiB are never reset
)

// overloadManager keeps an Envoy alive that clients would fill. It gives free memory
// back; then refuses new requests, with a 503; then resets those streams that hold
// most, uploads that is, more of them the less is left; and last takes no more
// connections.
func overloadManager(heapBytes uint64, connections uint32) *overloadv3.OverloadManager {
	return &overloadv3.OverloadManager{
		RefreshInterval: seconds(0.25), // a body of 32 MiB comes in less than a second
		ResourceMonitors: []*overloadv3.ResourceMonitor{
			monitor(heap, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: heapBytes}),
			monitor("envoy.resource_monitors.global_downstream_max_connections",
				&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(connections)}),
		},
		Actions: []*overloadv3.OverloadAction{
			action("envoy.overload_actions.shrink_heap", threshold(shrinkAt)),
			action("envoy.overload_actions.stop_accepting_requests", threshold(refuseAt)),
			action("envoy.overload_actions.reset_high_memory_stream", scaled(resetFrom, resetAllAt)),
			action("envoy.overload_actions.stop_accepting_connections", threshold(closeAt)),
		},
		BufferFactoryConfig: &overloadv3.BufferFactoryConfig{MinimumAccountToTrackPowerOfTwo: leastResetLog},
	}
}

func monitor(name string, config proto.Message) *overloadv3.ResourceMonitor {
	return &overloadv3.ResourceMonitor{Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: pack(config)}}
}

func action(name string, when *overloadv3.Trigger) *overloadv3.OverloadAction {
	return &overloadv3.OverloadAction{Name: name, Triggers: []*overloadv3.Trigger{when}}
}

func threshold(at float64) *overloadv3.Trigger {
	return &overloadv3.Trigger{Name: heap, TriggerOneof: &overloadv3.Trigger_Threshold{
		Threshold: &overloadv3.ThresholdTrigger{Value: at},
	}}
}

func scaled(from, to float64) *overloadv3.Trigger {
	return &overloadv3.Trigger{Name: heap, TriggerOneof: &overloadv3.Trigger_Scaled{
		Scaled: &overloadv3.ScaledTrigger{ScalingThreshold: from, SaturationThreshold: to},
	}}
}
