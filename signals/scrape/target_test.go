package scrape

import (
	"errors"
	"testing"
	"time"

	"weir/signals/dialect"
)

func TestStaleValuesAreForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	page := dialect.Page{Dialect: "vllm", Values: dialect.Values{Running: dialect.Is(3)}}
	target := &target{}
	target.sample(now, &page, nil)
	for after, want := range map[time.Duration]dialect.State{time.Second: dialect.Stale, forgetAfter: dialect.Stale} {
		if s := target.sample(now.Add(after), &dialect.Page{}, errors.New("gone")); s.Values.Running.State != want || !s.ReadAt.Equal(now) {
			t.Errorf("after %v running is %s, read at %v, want %s", after, s.Values.Running.State, s.ReadAt, want)
		}
	}
	s := target.sample(now.Add(forgetAfter+1), &dialect.Page{}, errors.New("gone"))
	if s.Values.Running.State != dialect.Unknown || !s.ReadAt.IsZero() || s.Dialect != "" {
		t.Errorf("in the end the sample is %+v, want all unknown", s)
	}
}

func TestAnotherDialectBeginsAnew(t *testing.T) {
	now := time.Unix(1000, 0)
	target := &target{}
	vllm := dialect.Page{Dialect: "vllm", Values: dialect.Values{PromptTokens: dialect.Is(3)}}
	sglang := dialect.Page{Dialect: "sglang", Values: dialect.Values{PromptTokens: dialect.Is(5)}}
	target.sample(now, &vllm, nil)
	if s := target.sample(now.Add(time.Second), &sglang, nil); s.Window.PromptTokens.Known() || s.Over != 0 {
		t.Errorf("between two dialects: %+v over %v, want nothing", s.Window, s.Over)
	}
	if s := target.sample(now.Add(2*time.Second), &sglang, nil); !s.Window.PromptTokens.Known() || s.Over != time.Second {
		t.Errorf("within a dialect: %+v over %v, want a window of 1 s", s.Window, s.Over)
	}
	if target.likely != "sglang" {
		t.Errorf("the next page is taken for %q", target.likely)
	}
}
