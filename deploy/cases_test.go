package deploy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/deploy/stage"
)

// cases are requests that real clients sent and bodies after public bug reports.
// They are others' and not part of this repository.
const cases = "../../shared/cases"

// serveCases stages engines for the models of the cases.
func serveCases(t *testing.T, unreadable bool) *stage.Stage {
	t.Helper()
	if _, err := os.Stat(cases); err != nil {
		t.Skip("the shared cases are not here:", err)
	}
	return start(t, stage.Options{FleetFile: steadyFleet, Edit: func(text string) string {
		text = strings.ReplaceAll(text, "models: [llama-3.3-70b]", "models: [m1, e, claude-x]")
		text = strings.ReplaceAll(text, "- model: llama-3.3-70b", "- models: [m1, e, claude-x]")
		if unreadable {
			text += "  unreadable: chat\n"
		}
		return text
	}})
}

// What real clients send reaches an engine byte for byte and gets a whole answer,
// weir-extproc alive or dead.
func TestClientCaptures(t *testing.T) {
	t.Parallel()
	s := serveCases(t, false)
	files, err := filepath.Glob(cases + "/clients/*/*.http")
	check(t, err)
	if len(files) < 10 {
		t.Fatalf("found %d captures in %s, want at least ten", len(files), cases)
	}
	for _, state := range []string{"alive", "dead"} {
		if state == "dead" {
			check(t, s.Process("extproc-east").Kill())
		}
		for _, file := range files {
			name := state + "/" + strings.TrimPrefix(file, cases+"/clients/")
			raw, err := os.ReadFile(file)
			check(t, err)
			head, body, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
			_, exact, found := bytes.Cut(raw, []byte("\r\n\r\n"))
			if found {
				body = exact
			}
			status := sendRaw(t, s, head, body, name)
			if status != 200 {
				t.Errorf("%s: status %d, want 200", name, status)
			}
			sameBytes(t, s, name, body)
		}
	}
	noWeirHeaders(t, s)
}

// sendRaw replays a captured request on a connection of its own, with a mark of the
// test's.
func sendRaw(t *testing.T, s *stage.Stage, head, body []byte, mark string) int {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.Fleet.FrontEnd("east").Listen, 5*time.Second)
	check(t, err)
	defer c.Close()
	check(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	lines := strings.Split(strings.TrimSpace(string(head)), "\n")
	request := strings.Join(append(lines, "x-test-id: "+mark), "\r\n") + "\r\n\r\n"
	_, err = c.Write(append([]byte(request), body...))
	check(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(t, err)
	defer response.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(response.Body); err != nil {
		t.Errorf("%s: the answer is not whole: %v", mark, err)
	}
	return response.StatusCode
}

func sameBytes(t *testing.T, s *stage.Stage, mark string, body []byte) {
	t.Helper()
	sum := sha256.Sum256(body)
	group := byTest(arrivals(t, s))[mark]
	if len(group) == 0 {
		t.Errorf("%s: reached no engine", mark)
	}
	for _, a := range group {
		if a.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: the engine read %d other bytes than the %d sent", mark, a.Bytes, len(body))
		}
	}
}

// Bodies that broke other routers reach an engine byte for byte, or get a 400 where
// no model can be read and no class is named for that; never an error of ours. With
// weir-extproc dead Envoy reads less.
func TestHardBodies(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{false, true} {
		t.Run(fmt.Sprintf("unreadable goes to a class: %v", unreadable), func(t *testing.T) {
			t.Parallel()
			s := serveCases(t, unreadable)
			hardBodies(t, s, "alive", func(name string) bool {
				return toldNoModel[name] && (!unreadable || name == "dup-key-model.json")
			})
			noTimeouts(t, s)
			check(t, s.Process("extproc-east").Kill())
			check(t, s.Await(t.Context(), "east", false))
			hardBodies(t, s, "dead", func(name string) bool { return (toldNoModel[name] || unreadByEnvoy[name]) && !unreadable })
		})
	}
}

var (
	toldNoModel = map[string]bool{
		"dup-key-model.json": true, "empty-body.bin": true, "missing-model.json": true, "model-null.json": true,
		"top-level-array.json": true, "truncated.json": true, "deep-nesting-10k.json": true,
	}
	unreadByEnvoy = map[string]bool{"invalid-utf8.bin": true, "ok.gz": true, "ok.zst": true}
)

func hardBodies(t *testing.T, s *stage.Stage, state string, refused func(name string) bool) {
	t.Helper()
	files, err := filepath.Glob(cases + "/bodies/*")
	check(t, err)
	client := stage.NewClient()
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "sse-") {
			continue // pieces of an answer
		}
		body, err := os.ReadFile(file)
		check(t, err)
		mark := state + "/" + name
		headers := headersOf(name)
		headers["x-test-id"] = mark
		r := stage.Do(t.Context(), client, stage.Call{URL: s.URL("east"), Path: pathOf(name), Body: body, Headers: headers})
		if refused(name) {
			mustRefuse(t, r, 400)
			continue
		}
		if r.Err != nil || r.Status >= 500 {
			t.Errorf("%s: %v", mark, &r)
		}
		sameBytes(t, s, mark, body)
	}
}

func pathOf(name string) string {
	switch {
	case strings.HasPrefix(name, "conversation-"):
		return "/v1/responses"
	case strings.HasPrefix(name, "prompt-"):
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

func headersOf(name string) map[string]string {
	headers := map[string]string{}
	switch filepath.Ext(name) {
	case ".gz":
		headers["content-encoding"] = "gzip"
	case ".zst":
		headers["content-encoding"] = "zstd"
	}
	return headers
}
