package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"weir/fleet"
)

// Arrival is one line of an engine's journal: who asked it for what.
type Arrival struct {
	Engine  fleet.EngineID    `json:"-"`
	Pool    fleet.PoolID      `json:"-"`
	Event   string            `json:"event"`
	ID      uint64            `json:"id"`
	Time    time.Time         `json:"time"`
	Path    string            `json:"path"`
	Model   string            `json:"model"`
	Bytes   int               `json:"bytes"`
	SHA256  string            `json:"sha256"`
	Names   []string          `json:"xHeaders"` // of received headers that start with x-
	Headers map[string]string `json:"headers"`
}

// Arrivals reads the journals of all mock engines, ordered by time. The journals
// are where the truth is: what an engine noted did reach it. For llama.cpp engines,
// which keep none, see [Stage.Sent].
func (s *Stage) Arrivals() ([]Arrival, error) {
	var all []Arrival
	for i := range s.Fleet.Pools {
		p := &s.Fleet.Pools[i]
		for _, e := range p.Engines {
			if s.isExternal(p) || s.isLlama(p) {
				continue // no engine that keeps a journal
			}
			some, err := readJournal(s.Journal(e))
			if err != nil {
				return nil, err
			}
			for _, a := range some {
				a.Engine, a.Pool = e, p.ID
				all = append(all, a)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Arrival) int { return a.Time.Compare(b.Time) })
	return all, nil
}

// Journals says whether every engine keeps a journal.
func (s *Stage) Journals() bool {
	return !slices.ContainsFunc(s.Fleet.Pools, func(p fleet.Pool) bool { return s.isLlama(&p) })
}

func readJournal(path string) ([]Arrival, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var arrivals []Arrival
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a Arrival
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if a.Event == "arrival" {
			arrivals = append(arrivals, a)
		}
	}
	return arrivals, lines.Err()
}
