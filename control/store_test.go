package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"weir/fleet"
)

func somePlan(share float64) *fleet.Plan {
	return &fleet.Plan{
		Status: fleet.Optimal,
		Routes: []fleet.Route{{FrontEnd: "f", Class: "k", DemandRps: 3, Shares: []fleet.Share{
			{Pool: "p", Share: share, Rps: 3 * share}, {Pool: "q", Share: 1 - share, Rps: 3 * (1 - share)},
		}}},
		Pools: []fleet.PoolPlan{{Pool: "p", CapacityRps: 5, Rps: 3 * share}, {Pool: "q", CapacityRps: 5, Rps: 3 * (1 - share)}},
	}
}

func someSaved(share float64) Saved {
	return Saved{At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Plan: somePlan(share), Fleet: "pools: []\n", Engines: map[fleet.PoolID][]fleet.EngineID{"p": {"10.0.0.1:80"}}}
}

func TestStoreKeepsTheLastPlan(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "made", "on", "demand")}
	if _, err := s.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of nothing = %v, want fs.ErrNotExist", err)
	}
	for _, share := range []float64{0.25, 1.0 / 3} {
		if err := s.Save(someSaved(share)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	want := someSaved(1.0 / 3)
	if diff := cmp.Diff(got, &want); diff != "" {
		t.Errorf("Load (-got +want):\n%s", diff)
	}
	if names := list(t, s.Dir); len(names) != 1 {
		t.Errorf("the directory holds %v, want the plan alone", names)
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStoreSetsAsideWhatItCannotUse(t *testing.T) {
	s := Store{t.TempDir()}
	if err := s.Save(someSaved(0.5)); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(s.Dir, storeFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"empty":          {"", "a file of 0 bytes is none of ours"},
		"torn":           {string(good[:len(good)/2]), "corrupt"},
		"edited":         {strings.Replace(string(good), `"demandRps":3`, `"demandRps":4`, 1), "does not match its checksum"},
		"future version": {strings.Replace(string(good), `"format":1`, `"format":2`, 1), "another version wrote it"},
		"no plan":        {`{"format":1,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","saved":{}}`, "it holds no plan"},
		"not ours":       {`[1,2]`, "corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(s.Dir, storeFile)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Read = %v, want one that says %q", err, c.want)
			}
			_, err := s.Load()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), storeFile+refused) {
				t.Errorf("Load = %v, want one that says %q and where the file is now", err, c.want)
			}
			names, err := filepath.Glob(filepath.Join(s.Dir, storeFile+refused+".*"))
			if err != nil || len(names) != 1 {
				t.Fatalf("set aside %v, %v, want one file", names, err)
			}
			aside, err := os.ReadFile(names[0])
			if err != nil || string(aside) != c.text {
				t.Errorf("set aside %q, %v, want the file as it was", aside, err)
			}
			if err := os.Remove(names[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Load(); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the second Load = %v, want fs.ErrNotExist", err)
			}
		})
	}
}

func TestStoreThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Store{file}.Save(someSaved(0.5))
	if err == nil || !strings.Contains(err.Error(), "save plan: ") || !strings.Contains(err.Error(), file) {
		t.Errorf("Save = %v, want an error that names the place", err)
	}
}

func TestOneControlPlaneKeepsItsPlansHere(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "made")}
	if err := s.Lock(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("state directory %s: another control plane (process %d) keeps its plans there: end that one, or give this one another --state", s.Dir, os.Getpid())
	if err := s.Lock(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the second Lock = %v, want one that says who has it", err)
	}
}

// keep runs a keeper over batches of plans, each of which comes faster than the
// disk takes it, and returns what it logged.
func keep(t *testing.T, store Store, batches ...[]Saved) *observer.ObservedLogs {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	k := NewKeeper(store, zap.New(core))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // what is pending is saved all the same
	for _, batch := range batches {
		for _, saved := range batch {
			k.Keep(saved)
		}
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return logs
}

func TestKeeperSavesTheLastGoodPlan(t *testing.T) {
	s := Store{t.TempDir()}
	held := someSaved(0.75)
	held.Plan.Status = fleet.Held
	keep(t, s, []Saved{someSaved(0.25), someSaved(0.5), held})
	got, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if share := got.Plan.Routes[0].Shares[0].Share; share != 0.5 {
		t.Errorf("saved share %v, want that of the last plan that was not held", share)
	}
}

func TestKeeperComplainsOnceOfADiskThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	logs := keep(t, Store{file}, []Saved{someSaved(0.25)}, []Saved{someSaved(0.5)})
	if logs.FilterMessageSnippet("plan not saved").Len() != 1 {
		t.Errorf("logged %v, want one complaint", logs.All())
	}
}

func TestSameIgnoresOnlyTheTime(t *testing.T) {
	a, b := someSaved(0.5), someSaved(0.5)
	b.At = b.At.Add(time.Hour)
	if !a.same(&b) {
		t.Error("an unchanged plan is saved again")
	}
	for name, change := range map[string]func(*Saved){
		"plan":  func(s *Saved) { s.Plan = somePlan(0.6) },
		"fleet": func(s *Saved) { s.Fleet += "#" },
	} {
		c := someSaved(0.5)
		change(&c)
		if a.same(&c) {
			t.Errorf("another %s is not saved", name)
		}
	}
}

// What pools showed is kept beside the loop, and read back; a torn file is set aside.
func TestHistoriesAreKept(t *testing.T) {
	s := Store{t.TempDir()}
	k := NewKeeper(s, zap.NewNop())
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := Histories{"p": {{From: at, To: at.Add(time.Minute), EngineSeconds: 120, Issued: 600, Tokens: fleet.Tokens{Prompt: 1000}, TTFT: fleet.Timing{Items: 9, Seconds: 0.2, StdErr: fleet.StdErr{Value: 0.01, Known: true}}}}}
	k.KeepHistories(Histories{"p": nil})
	k.KeepHistories(want)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := k.Run(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := s.LoadHistories()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	path := filepath.Join(s.Dir, historyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.LoadHistories(); err == nil || !strings.Contains(err.Error(), "pools' histories, now in") {
		t.Errorf("a torn file is read as %v", err)
	}
	unwritable := NewKeeper(Store{filepath.Join(path+".none", "\x00")}, zap.NewNop())
	if unwritable.saveHistories(want); unwritable.HistoriesFailed.Load() != 1 {
		t.Error("what is not saved is not counted")
	}
}
