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
		if (asked || seen != string(text)) && p.reload(text) {
			seen = string(text)
		}
	}
}

// reload puts a changed fleet in force. A bad one is refused with its errors, and
// the old one stays; false asks for another try at the same text.
func (p *plane) reload(text []byte) bool {
	f, err := config.Parse(p.file, text)
	if err != nil {
		p.complain(err)
		return true
	}
	p.complaint.Store(nil)
	text = bytes.Clone(text)
	posted := p.loop.Post(func(now time.Time) {
		p.fleetText = string(text)
		p.book.SetFleet(now, f)
		p.useFound()
		p.server.SetFrontEnds(frontEnds(f))
	})
	if !posted {
		p.counters.fleetRefused.Add(1)
		p.log.Error("fleet file not taken yet: the control plane is overloaded", zap.String("file", p.file))
		return false
	}
	p.finder.SetFleet(f)
	p.log.Info("fleet file read again", zap.String("file", p.file))
	return true
}

// complain logs why the fleet file could not be read again, once for each reason.
func (p *plane) complain(err error) {
	p.counters.fleetRefused.Add(1)
	complaint := err.Error()
	if old := p.complaint.Swap(&complaint); old == nil || *old != complaint {
		p.log.Error("fleet file refused, the last one stays", zap.String("file", p.file), zap.Error(err))
	}
}
