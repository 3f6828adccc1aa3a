package main

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"weir/config"
)

// watchEvery is how often the fleet file is compared with what was read last. A
// comparison of contents survives every way of replacing a file.
const watchEvery = 2 * time.Second

// watch reads the fleet file again when its content has changed, and on SIGHUP.
func (p *plane) watch(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	seen := p.fleetText
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			asked = true
		case <-tick.C:
		}
		text, err := config.Read(p.file)
		if err != nil {
			p.complain(err)
			continue
		}
		if asked || seen != string(text) {
			seen = string(text)
			p.reload(text)
		}
	}
}

// reload puts a changed fleet in force. A bad one is refused with its errors, and
// the old one stays.
func (p *plane) reload(text []byte) {
	f, err := config.Parse(p.file, text)
	if err != nil {
		p.complain(err)
		return
	}
	p.complaint = ""
	text = bytes.Clone(text)
	posted := p.loop.Post(func(time.Time) {
		p.fleetText = string(text)
		p.tracker.SetFleet(f)
		p.server.SetFrontEnds(frontEnds(f))
	})
	if !posted {
		p.log.Error("fleet file not taken: the control plane is overloaded, send it SIGHUP", zap.String("file", p.file))
		return
	}
	p.prober.SetFleet(f)
	p.log.Info("fleet file read again", zap.String("file", p.file))
}

// complain logs why the fleet file could not be read again, once for each reason.
func (p *plane) complain(err error) {
	if err.Error() != p.complaint {
		p.log.Error("fleet file refused, the last one stays", zap.String("file", p.file), zap.Error(err))
	}
	p.complaint = err.Error()
}
