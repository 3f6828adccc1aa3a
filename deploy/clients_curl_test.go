package deploy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"weir/deploy/stage"
)

// curlVisits are those of curl, over HTTP/1.1 and over HTTP/2 without TLS.
func curlVisits(t *testing.T, s *stage.Stage, state string) {
	for version, flag := range map[string]string{"1.1": "--http1.1", "2": "--http2-prior-knowledge"} {
		t.Run("curl "+version, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("curl"); err != nil {
				t.Skip("curl is not installed: run 'make setup':", err)
			}
			v := curl{t, s, version, flag, "curl-" + version + "-" + state}
			v.whole("small", stage.Chat(chatModel, v.name, false, 0))
			v.whole("large", stage.Chat(chatModel, v.name, false, 2<<20))
			v.stream()
			v.unknownModel()
			v.abort()
		})
	}
}

// curl is the command at a front-end, speaking one version of HTTP.
type curl struct {
	t       *testing.T
	stage   *stage.Stage
	version string
	flag    string
	name    string
}

func (c curl) command(mark string, body []byte) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), "curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--max-time", "30", c.flag,
		"--header", "content-type: application/json", "--header", "x-test-id: "+mark, "--data-binary", "@-",
		"--write-out", "\n%{http_version} %{response_code}", c.stage.URL("main")+"/v1/chat/completions")
	cmd.Stdin = bytes.NewReader(body)
	return cmd
}

// post sends a body, wants a status in the version of HTTP that was asked for, and
// returns the answer.
func (c curl) post(mark string, body []byte, status int) string {
	c.t.Helper()
	out, err := c.command(mark, body).CombinedOutput()
	if err != nil {
		c.t.Errorf("%s: %v: %s", mark, err, out)
	}
	i := bytes.LastIndexByte(out, '\n')
	if got, want := string(out[i+1:]), fmt.Sprint(c.version, " ", status); got != want {
		c.t.Errorf("%s: HTTP version and status %s, want %s: %.200s", mark, got, want, out)
	}
	return strings.TrimSpace(string(out[:max(i, 0)]))
}

func (c curl) whole(what string, body []byte) {
	c.t.Helper()
	mark := c.name + "-" + what
	var answer struct {
		Usage struct {
			Output int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(c.post(mark, body, 200)), &answer); err != nil || answer.Usage.Output != 4 {
		c.t.Errorf("%s: %d tokens, %v, want 4", mark, answer.Usage.Output, err)
	}
	sum := sha256.Sum256(body)
	for _, a := range byTest(arrivals(c.t, c.stage))[mark] {
		if a.SHA256 == hex.EncodeToString(sum[:]) {
			return
		}
	}
	c.t.Errorf("%s: no engine read the %d bytes that were sent", mark, len(body))
}

func (c curl) stream() {
	c.t.Helper()
	answer := c.post(c.name+"-stream", stage.Chat(chatModel, c.name, true, 0), 200)
	if n := strings.Count(answer, "data: {"); n != 4 || !strings.HasSuffix(answer, "data: [DONE]") {
		c.t.Errorf("stream: %d events, want one for each of 4 tokens and then the end: %s", n, answer)
	}
}

func (c curl) unknownModel() {
	c.t.Helper()
	answer := c.post(c.name+"-unknown", stage.Chat("gpt-9", c.name, false, 0), 404)
	if !strings.Contains(answer, "model_not_found") {
		c.t.Errorf("unknown model: %s", answer)
	}
}

// abort kills curl in the middle of a stream.
func (c curl) abort() {
	c.t.Helper()
	mark := c.name + "-abort"
	body := strings.Replace(string(stage.Chat(chatModel, c.name, true, 0)), `"max_tokens":4`, `"max_tokens":2000`, 1)
	cmd := c.command(mark, []byte(body))
	out, err := cmd.StdoutPipe()
	check(c.t, err)
	check(c.t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "data: ") {
		c.t.Errorf("%s: began with %q, %v", mark, line, err)
	}
	check(c.t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // killed
	aborted(c.t, c.stage, mark)
}
