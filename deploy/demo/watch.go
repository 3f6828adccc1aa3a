package demo

import (
	"context"
	"time"

	"go.uber.org/zap"

	"weir/envoy"
	"weir/fleet"
	"weir/xds"
)

// watch follows what a front-end is told, as one more Envoy of it would be.
func (d *director) watch(ctx context.Context, id fleet.FrontEndID) error {
	conn, err := xds.Dial(d.stage.XDS, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	node := envoy.Node(id, "demo-"+string(id), fleet.RoleEnvoy)
	return xds.NewClient(conn, node, func(r *envoy.Resources) error {
		v, err := envoy.Decode(r)
		if err == nil {
			d.history.add(id, time.Now(), v)
		}
		return err
	}, zap.NewNop()).Run(ctx)
}
