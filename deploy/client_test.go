package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kind is a client library that others wrote, with the script in testdata/clients
// that drives it.
type kind struct {
	name    string
	program string // a variable that names it
	usual   string // where make setup puts it
	script  string
	path    string // of the API for chats
	cut     string // why an answer ends that uses up its tokens
	called  string // why an answer ends that calls a tool
}

var (
	openAIPython = kind{
		name: "openai-python", program: "WEIR_PYTHON", usual: "../.venv/bin/python", script: "openai_python.py",
		path: "/v1/chat/completions", cut: "length", called: "tool_calls",
	}
	openAINode = kind{
		name: "openai-node", program: "WEIR_NODE", usual: "../.venv/bin/node", script: "openai_node.js",
		path: "/v1/chat/completions", cut: "length", called: "tool_calls",
	}
	anthropicPython = kind{
		name: "anthropic-python", program: "WEIR_PYTHON", usual: "../.venv/bin/python", script: "anthropic_python.py",
		path: "/v1/messages", cut: "max_tokens", called: "tool_use",
	}
	kinds = []kind{openAIPython, openAINode, anthropicPython}
)

// order is what a client is asked to do.
type order struct {
	Do      string            `json:"do"`
	Mark    string            `json:"mark"` // of its requests
	Model   string            `json:"model,omitempty"`
	Tokens  int               `json:"tokens,omitempty"`
	Retries int               `json:"retries,omitempty"`
	Turns   int               `json:"turns,omitempty"`
	Inputs  []string          `json:"inputs,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// result is what a client made of it.
type result struct {
	Text    string
	Pieces  int // of the text, as they came
	Finish  string
	Prompt  int // tokens, as the usage says
	Output  int
	Tool    string
	Args    map[string]any `json:"arguments"`
	Models  []string
	Vectors []int // their dimensions

	Error   string // name of the client's own kind of error
	Status  int
	Message string

	Sent []struct { // every request, retries included
		SHA256 string
		Retry  int     // the count that the client sent, −1: none
		At     float64 // Unix seconds
	}
	Missing string // why the client cannot run here
}

// patience is how long a client may take over one order, or to end.
const patience = time.Minute

// client is a running one.
type client struct {
	kind
	kill   func()
	orders *json.Encoder
	said   *json.Decoder
	stderr *strings.Builder
	ready  bool
}

// startClient starts a client of a front-end; it loads while the test goes on.
func startClient(t *testing.T, k kind, url string) *client {
	t.Helper()
	program, set := os.LookupEnv(k.program)
	if !set {
		program = k.usual
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is not installed: run 'make setup', or point %s to it: %v", k.name, k.program, err)
	}
	modules, err := filepath.Abs("../tools/node/node_modules")
	check(t, err)
	c := &client{kind: k, stderr: new(strings.Builder)}
	cmd := exec.Command(program, filepath.Join("testdata/clients", k.script), url)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*", "no_proxy=*")
	cmd.Stderr = c.stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	c.orders, c.said = json.NewEncoder(in), json.NewDecoder(out)
	check(t, cmd.Start())
	c.kill = func() { _ = cmd.Process.Kill() }
	t.Cleanup(func() {
		in.Close() // the end of its orders
		defer time.AfterFunc(patience, c.kill).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", k.name, err, c.stderr)
		}
	})
	return c
}

// await waits until the client has loaded, and skips the test where it is not
// installed.
func (c *client) await(t *testing.T) {
	t.Helper()
	if c.ready {
		return
	}
	if r := c.hear(t); r.Missing != "" {
		t.Skipf("%s is not installed, run 'make setup': %s", c.name, r.Missing)
	}
	c.ready = true
}

// do has the client do something.
func (c *client) do(t *testing.T, o order) result {
	t.Helper()
	c.tell(t, o)
	return c.hear(t)
}

func (c *client) tell(t *testing.T, o order) {
	t.Helper()
	if err := c.orders.Encode(o); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
}

func (c *client) hear(t *testing.T) (r result) {
	t.Helper()
	// Its own life has no deadline: a test may wait long for its turn to run.
	defer time.AfterFunc(patience, c.kill).Stop()
	if err := c.said.Decode(&r); err != nil {
		t.Fatalf("%s ended: %v", c.name, err) // why, its cleanup says
	}
	return r
}
