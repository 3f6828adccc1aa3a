package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"weir/envoy"
	"weir/fleet"
	"weir/xds"
)

func newSnapshot() *cobra.Command {
	var frontEnd, target string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "snapshot --front-end NAME",
		Short: "Show what a front-end is served",
		Args:  args(),
	}
	format := outputFlag(c)
	c.Flags().StringVar(&frontEnd, "front-end", "", "`name` of the front-end")
	c.Flags().StringVar(&target, "xds", "127.0.0.1:18000", "`host:port` of the control plane")
	timeoutFlag(c, &timeout, 5*time.Second, "the control plane")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if frontEnd == "" {
			return usage("snapshot needs --front-end")
		}
		if err := envoy.CheckControlPlane(target); err != nil {
			return usage("--xds: %w", err)
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), timeout, silence(target, frontEnd, timeout))
		defer cancel()
		if err := reach(ctx, target); err != nil {
			return err
		}
		v, err := fetchView(ctx, target, fleet.FrontEndID(frontEnd))
		if err != nil {
			return err
		}
		return show(c.OutOrStdout(), *format, v, func(w *tabwriter.Writer) { snapshotTable(w, v) })
	}
	return c
}

// reach says at once that nobody listens, which a client that must outlive the
// control plane's outages would not.
func reach(ctx context.Context, target string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("control plane at %s not reachable: %w", target, err)
	}
	return c.Close()
}

// silence is what it means that a control plane is there and sends nothing.
func silence(target, frontEnd string, timeout time.Duration) error {
	return fmt.Errorf("the control plane at %s is there, but served nothing for front-end %q in %v: "+
		"its fleet file does not name this front-end, or it has no plan yet", target, frontEnd, timeout)
}

// snapshot is what a front-end is served; its JSON form is a stable interface.
type snapshot struct {
	FrontEnd fleet.FrontEndID `json:"frontEnd"`
	Listen   string           `json:"listen"`
	Version  string           `json:"version"`
	Plan     string           `json:"plan"` // version of what weir-extproc is served too, as x-weir-decision has it
	Classes  []snapshotClass  `json:"classes"`
}

type snapshotClass struct {
	Class    fleet.ClassID  `json:"class"`
	Match    []string       `json:"match"`
	Priority int            `json:"priority"`
	Admitted float64        `json:"admitted"` // of those that an engine can be found for
	Serving  int            `json:"serving"`  // engines that may be given requests; 0: all get a 503
	Pools    []snapshotPool `json:"pools"`
}

type snapshotPool struct {
	Pool     fleet.PoolID     `json:"pool"`
	Region   string           `json:"region"`
	Share    float64          `json:"share"`
	Weight   uint32           `json:"weight"`
	Priority int              `json:"priority"` // of its endpoints: 0 shares traffic, 1 is a reserve
	Engines  []snapshotEngine `json:"engines"`
}

type snapshotEngine struct {
	Engine fleet.EngineID `json:"engine"`
	Weight uint32         `json:"weight"`
	Health string         `json:"health"`
}

// fetchView connects as one more Envoy of the front-end and takes its first full
// set of resources.
func fetchView(ctx context.Context, target string, id fleet.FrontEndID) (*snapshot, error) {
	conn, err := xds.Dial(target, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	var taken *envoy.Resources
	node := envoy.Node(id, fmt.Sprintf("snapshot-%d", os.Getpid()), fleet.RoleEnvoy)
	client := xds.NewClient(conn, node, func(r *envoy.Resources) error {
		taken = r
		stop()
		return nil
	}, zap.NewNop())
	if err := client.Run(running); err != nil {
		return nil, err
	}
	if taken == nil {
		return nil, context.Cause(ctx)
	}
	v, err := envoy.Decode(taken)
	if err != nil {
		return nil, fmt.Errorf("what %s serves to %q: %w", target, id, err)
	}
	v.Plan = taken.PlanVersion()
	return newSnapshotOf(v, taken.Version()), nil
}

func newSnapshotOf(v *fleet.View, version string) *snapshot {
	s := &snapshot{FrontEnd: v.FrontEnd, Listen: v.Listen, Version: version, Plan: v.Plan}
	for _, c := range v.Classes {
		sc := snapshotClass{Class: c.ID, Priority: c.Priority, Admitted: c.Admitted}
		for _, r := range v.Routes {
			if r.Class == c.ID {
				sc.Match = append(sc.Match, describeRule(r.Rule))
			}
		}
		for i := range c.Pools {
			sc.Pools = append(sc.Pools, newSnapshotPool(&c, &c.Pools[i]))
			for _, e := range c.Pools[i].Engines {
				if e.Readiness.Serves() {
					sc.Serving++
				}
			}
		}
		s.Classes = append(s.Classes, sc)
	}
	return s
}

func newSnapshotPool(c *fleet.ViewClass, p *fleet.ViewPool) snapshotPool {
	out := snapshotPool{Pool: p.ID, Region: p.Region, Weight: p.Weight, Share: float64(p.Weight) / fleet.WeightScale}
	out.Priority = envoy.Priority(c, p)
	for _, e := range p.Engines {
		out.Engines = append(out.Engines, snapshotEngine{e.ID, p.EngineWeight(), e.Readiness.String()})
	}
	return out
}

func describeRule(r fleet.Rule) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("host", r.Host)
	if r.Exact {
		add("path", r.Path)
	} else {
		add("pathPrefix", r.Path)
	}
	for _, h := range r.Headers {
		add("header "+h.Name, h.Value)
	}
	add("model", r.Model)
	if r.Body.Tools {
		parts = append(parts, "tools")
	}
	if r.Body.Vision {
		parts = append(parts, "vision")
	}
	if r.Body.ContextOver > 0 {
		add("contextOver", strconv.Itoa(r.Body.ContextOver))
	}
	return strings.Join(parts, " ")
}

func snapshotTable(w *tabwriter.Writer, s *snapshot) {
	row(w, "front-end %s on %s, version %s, plan %s\n", s.FrontEnd, s.Listen, s.Version, s.Plan)
	row(w, "CLASS\tADMITTED\tPOOL\tSHARE\tPRIORITY\tENGINE\tWEIGHT\tHEALTH")
	for _, c := range s.Classes {
		class := fmt.Sprintf("%s\t%.2f%%", c.Class, 100*c.Admitted)
		if c.Serving == 0 {
			class = fmt.Sprintf("%s\tno engine", c.Class)
		}
		if len(c.Pools) == 0 {
			row(w, "%s\tnone\t\t\t\t\t", class)
		}
		for _, p := range c.Pools {
			pool := fmt.Sprintf("%s\t%.2f%%\t%d", p.Pool, 100*p.Share, p.Priority)
			for _, e := range p.Engines {
				row(w, "%s\t%s\t%s\t%d\t%s", class, pool, e.Engine, e.Weight, e.Health)
				class, pool = "\t", "\t\t"
			}
		}
	}
}
