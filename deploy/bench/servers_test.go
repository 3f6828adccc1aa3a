package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"

	"weir/extproc"
	"weir/fleet"
)

// Words by which this test's own program is started to play a part in a process of
// its own, so that its CPU time is not another's.
const (
	playEngines = "bench-engines"
	playExtProc = "bench-extproc"
)

// play plays a part if the program was started for that.
func play(args []string) bool {
	if len(args) < 2 {
		return false
	}
	var err error
	switch args[0] {
	case playEngines:
		err = engines(args[1])
	case playExtProc:
		err = trivial(args[1])
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		os.Exit(1)
	}
	return true
}

// trivial is the least that an ext_proc in Go can be: the messages are decoded and
// answered, and nobody looks at them. It takes the access log as well, unread, for
// Envoys that differ in nothing else.
func trivial(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	g := grpc.NewServer(extproc.ServerOptions()...)
	extprocv3.RegisterExternalProcessorServer(g, trivialExtProc{})
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: logv3.AccessLogService_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "StreamAccessLogs", Handler: dropLog, ClientStreams: true}},
	}, nil)
	healthv1.RegisterHealthServer(g, health.NewServer())
	return g.Serve(l)
}

type trivialExtProc struct {
	extprocv3.UnimplementedExternalProcessorServer
}

func (trivialExtProc) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		out := &extprocv3.ProcessingResponse{}
		switch m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			out.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}
		case *extprocv3.ProcessingRequest_RequestBody:
			out.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}
		default:
			return fmt.Errorf("a message of type %T", m.Request)
		}
		if err := stream.Send(out); err != nil {
			return nil
		}
	}
}

// unread is a message of which nothing is read.
type unread struct{}

func (unread) Unmarshal(mem.BufferSlice) error { return nil }

// dropLog takes an access log and drops it unread.
func dropLog(_ any, stream grpc.ServerStream) error {
	for {
		if err := stream.RecvMsg(unread{}); err != nil {
			return nil
		}
	}
}

// Headers by which a request asks an engine for a stream of so many tokens, one each
// so many microseconds.
const (
	askTokens = "x-bench-tokens"
	askGap    = "x-bench-gap"
)

// engines serves n engines, prints their addresses, and ends with its input.
func engines(n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go accept(l)
		fmt.Println(l.Addr())
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if err := answer(c); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "engine:", err)
			}
		}()
	}
}

const (
	wholeAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":1764000000,"model":"bench","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":90,"completion_tokens":2,"total_tokens":92}}`
	tokenEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,"model":"bench","choices":[{"index":0,` +
		`"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	lastEvents = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,"model":"bench","choices":[],` +
		`"usage":{"prompt_tokens":90,"completion_tokens":2000,"total_tokens":2090}}` + "\n\ndata: [DONE]\n\n"
)

// answer answers the requests of one connection, as fast as can be.
func answer(c net.Conn) error {
	whole := []byte(fmt.Sprintf("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(wholeAnswer), wholeAnswer))
	r := bufio.NewReaderSize(c, 32<<10)
	for {
		asked, err := readHead(r)
		if err != nil {
			return err
		}
		if asked.chunked {
			return errors.New("a body of unknown length")
		}
		if _, err := r.Discard(asked.length); err != nil {
			return err
		}
		if asked.tokens > 0 {
			err = streamTokens(c, asked.tokens, asked.gap)
		} else {
			_, err = c.Write(whole)
		}
		if err != nil {
			return err
		}
	}
}

// head is what is read of the headers of a request or an answer.
type head struct {
	first   string // line
	length  int    // of the body
	chunked bool   // the length is not told
	tokens  int
	gap     time.Duration
}

// readHead reads up to the body. Names come from Envoy, in lower case.
func readHead(r *bufio.Reader) (h head, err error) {
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		if first {
			h.first = string(line)
			continue
		}
		if err := h.read(line); err != nil {
			return h, err
		}
	}
}

func (h *head) read(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(": "))
	var n int
	var err error
	number := func() int {
		n, err = strconv.Atoi(string(value))
		return n
	}
	switch string(name) {
	case "content-length":
		h.length = number()
	case askTokens:
		h.tokens = number()
	case askGap:
		h.gap = time.Duration(number()) * time.Microsecond
	case "transfer-encoding":
		h.chunked = true
	}
	return err
}

// streamTokens writes each token by itself, as engines do.
func streamTokens(c net.Conn, tokens int, gap time.Duration) error {
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	event := chunk(tokenEvent)
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for range tokens {
		<-tick.C
		if _, err := c.Write(event); err != nil {
			return err
		}
	}
	_, err := c.Write(append(chunk(lastEvents), chunk("")...))
	return err
}

func chunk(text string) []byte { return fmt.Appendf(nil, "%x\r\n%s\r\n", len(text), text) }

// startEngines has a process play n engines until the test ends.
func startEngines(t *testing.T, n int) []fleet.EngineID {
	t.Helper()
	c := exec.Command(os.Args[0], playEngines, strconv.Itoa(n))
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	check(t, err)
	stdout, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = c.Wait() })
	var ids []fleet.EngineID
	lines := bufio.NewScanner(stdout)
	for len(ids) < n && lines.Scan() {
		ids = append(ids, fleet.EngineID(strings.TrimSpace(lines.Text())))
	}
	if len(ids) < n {
		t.Fatalf("%d of %d engines started", len(ids), n)
	}
	return ids
}
