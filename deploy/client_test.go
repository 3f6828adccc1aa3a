package deploy

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
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

// client is a running one.
type client struct {
	kind
	t      *testing.T
	orders *json.Encoder
	said   *json.Decoder
	stderr *strings.Builder
}

// startClient starts a client of a front-end, and skips the test where it is not
// installed.
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
	c := &client{kind: k, t: t, stderr: new(strings.Builder)}
	cmd := exec.Command(program, filepath.Join("testdata/clients", k.script), url)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*", "no_proxy=*")
	cmd.Stderr = c.stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		in.Close() // the end of its orders
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", k.name, err, c.stderr)
		}
		deadline.Stop()
	})
	c.orders, c.said = json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	if o := c.hear(); o.Missing != "" {
		t.Skipf("%s is not installed, run 'make setup': %s", k.name, o.Missing)
	}
	return c
}

// do has the client do something.
func (c *client) do(t *testing.T, o order) result {
	t.Helper()
	if err := c.orders.Encode(o); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return c.hear()
}

func (c *client) hear() (o result) {
	if err := c.said.Decode(&o); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ended")
		}
		c.t.Fatalf("%s: %v\n%s", c.name, err, c.stderr)
	}
	return o
}
