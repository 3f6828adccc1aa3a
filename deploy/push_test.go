package deploy

import (
	"context"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/deploy/stage"
)

// An unchanged plan is not pushed again: neither round after round, nor by a
// control plane that was restarted. Envoy's own statistics count.
func TestAnUnchangedPlanIsNotPushed(t *testing.T) {
	t.Parallel()
	s := start(t, stage.Options{FleetFile: steadyFleet})
	awaitRounds(t, s, 3)
	before := updates(t, s)
	for _, kind := range []string{"cluster_manager.cds.update_success", "listener_manager.lds.update_success", "http.weir.rds.weir.update_success", "cluster.chat.update_success"} {
		if before[kind] == 0 {
			t.Fatalf("Envoy counts no %s: the test shows nothing", kind)
		}
	}
	awaitRounds(t, s, rounds(t, s)+5)
	if diff := cmp.Diff(before, updates(t, s)); diff != "" {
		t.Errorf("five rounds of one plan changed Envoy's counts (-before +after):\n%s", diff)
	}
	check(t, s.Process("weir").Kill())
	check(t, s.Process("weir").Start())
	eventually(t, "Envoy is connected again", 20*time.Second, func() bool {
		n, err := s.Stat(t.Context(), "east", "control_plane.connected_state")
		return err == nil && n == 1
	})
	awaitRounds(t, s, 5)
	after := updates(t, s)
	// The protocol begins each wildcard type of a stream with a message, which
	// holds nothing here.
	for _, kind := range []string{"cluster_manager.cds.update_success", "listener_manager.lds.update_success"} {
		if after[kind] > before[kind]+1 {
			t.Errorf("%s rose from %d to %d over a restart, want one message at most", kind, before[kind], after[kind])
		}
		after[kind] = before[kind]
	}
	// Retry budgets begin anew, with the fleet file's, until requests are measured.
	delete(before, "runtime.load_success")
	delete(after, "runtime.load_success")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a restarted control plane pushed an unchanged plan (-before +after):\n%s", diff)
	}
}

// updates are the counts of what an Envoy took, by type, the clusters and
// listeners that it made or changed for it included.
func updates(t *testing.T, s *stage.Stage) map[string]int {
	t.Helper()
	all, err := s.Stats(t.Context(), "east", `.*\.update_success|runtime\.load_success|cluster_manager\.cluster_(added|modified|removed)|listener_manager\.listener_(added|modified|removed)`)
	check(t, err)
	return maps.Clone(all)
}

var roundsMetric = regexp.MustCompile(`(?m)^weir_control_rounds_total (\d+)`)

// rounds asks the control plane how many rounds it has made.
func rounds(t *testing.T, s *stage.Stage) int {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.AdminAddress("weir")+"/metrics", nil)
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(t, err)
	found := roundsMetric.FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	check(t, err)
	return n
}

func awaitRounds(t *testing.T, s *stage.Stage, n int) {
	t.Helper()
	eventually(t, strconv.Itoa(n)+" rounds are made", 30*time.Second, func() bool { return rounds(t, s) >= n })
}
