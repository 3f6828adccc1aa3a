package extproc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"weir/fleet"
)

const patience = 30 * time.Second

// serve runs a server with a view, nil for none yet, and connects to it.
func serve(t *testing.T, v *fleet.View) (*Server, *grpc.ClientConn) {
	t.Helper()
	s := New(zaptest.NewLogger(t))
	if v != nil {
		s.Swap(NewTable(v))
	}
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer(ServerOptions()...)
	s.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, conn
}

// client is Envoy's side of one request.
type client struct {
	t      *testing.T
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
}

func open(t *testing.T, conn *grpc.ClientConn) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, stream, cancel}
}

func (c *client) ask(m *extprocv3.ProcessingRequest) *extprocv3.ProcessingResponse {
	c.t.Helper()
	if err := c.stream.Send(m); err != nil {
		c.t.Fatal(err)
	}
	out, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := out.ValidateAll(); err != nil {
		c.t.Errorf("the answer does not pass Envoy's rules: %v", err)
	}
	return out
}

func (c *client) headers(m *extprocv3.HttpHeaders) *extprocv3.ProcessingResponse {
	c.t.Helper()
	return c.ask(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: m}})
}

func (c *client) body(body string) *extprocv3.ProcessingResponse {
	c.t.Helper()
	return c.ask(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte(body), EndOfStream: true},
	}})
}

// end closes the stream as Envoy does when a request ends well.
func (c *client) end() {
	c.t.Helper()
	if err := c.stream.CloseSend(); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.stream.Recv(); err == nil {
		c.t.Error("a message after the end")
	}
}

// mutations are the headers that an answer sets.
func mutations(r *extprocv3.CommonResponse) map[string]string {
	out := map[string]string{}
	for _, h := range r.GetHeaderMutation().GetSetHeaders() {
		if h.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
			out[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
		}
	}
	return out
}

func picked(t *testing.T, r *extprocv3.CommonResponse) string {
	t.Helper()
	pick, err := base64.StdEncoding.DecodeString(mutations(r)["x-weir-pick"])
	if err != nil {
		t.Fatal(err)
	}
	return string(pick)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// openAt is how many requests are open at an engine.
func openAt(s *Server, e fleet.EngineID) uint64 {
	for _, o := range s.Open() {
		if o.Engine == e {
			return o.Open
		}
	}
	return 0
}

func TestAdmitFromTheBody(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	c := open(t, conn)

	got := c.headers(post("/v1/chat/completions"))
	want := &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{}},
		},
		ModeOverride: &filterv3.ProcessingMode{
			RequestBodyMode:     filterv3.ProcessingMode_BUFFERED,
			ResponseHeaderMode:  filterv3.ProcessingMode_SKIP,
			ResponseTrailerMode: filterv3.ProcessingMode_SEND,
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Fatalf("headers answered (-want +got):\n%s", diff)
	}

	got = c.body(`{"messages":[],"conversation":"c-1","model":"small"}`)
	common := got.GetRequestBody().GetResponse()
	if common == nil || !common.GetClearRouteCache() || common.GetStatus() != extprocv3.CommonResponse_CONTINUE {
		t.Fatalf("got %v, want a body response that goes on with a cleared route", got)
	}
	set := mutations(common)
	if set["x-weir-admitted"] != "1" || set["x-weir-model"] != "small" || len(set["x-weir-affinity"]) != 16 {
		t.Errorf("headers set: %v", set)
	}
	pick := picked(t, common)
	next := strings.Split(got.GetDynamicMetadata().GetFields()["weir"].GetStructValue().GetFields()["next"].GetStringValue(), ",")
	if len(next) != 3 || poolOf(fleet.EngineID(next[0])) == poolOf(fleet.EngineID(pick)) || poolOf(fleet.EngineID(next[1])) != poolOf(fleet.EngineID(pick)) {
		t.Errorf("pick %s, next %v: want another pool with a share, then the same pool", pick, next)
	}
	if n := openAt(s, fleet.EngineID(pick)); n != 1 {
		t.Errorf("in flight: %d, want 1", n)
	}
	c.end()
	eventually(t, "nothing in flight", func() bool { return openAt(s, fleet.EngineID(pick)) == 0 })
	if n := testutil.ToFloat64(s.keys.counted.WithLabelValues("body", "body:conversation")); n != 1 {
		t.Errorf("keys from body:conversation: %v, want 1", n)
	}
}

// A rule without a model and a key in a header leave nothing to ask the body for.
func TestAdmitFromTheHeaders(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Routes[0].Rule = fleet.Rule{Path: "/v1/"}
	_, conn := serve(t, v)
	c := open(t, conn)
	got := c.headers(post("/v1/chat/completions", "x-session: s-1"))
	common := got.GetRequestHeaders().GetResponse()
	if got.GetModeOverride() != nil || !common.GetClearRouteCache() {
		t.Fatalf("got %v, want a decision at once", got)
	}
	if model, ok := mutations(common)["x-weir-model"]; ok {
		t.Errorf("the model is set to %q without having been read", model)
	}

	// The body, had it named the same conversation, would lead to the same engine.
	c2 := open(t, conn)
	c2.headers(post("/v1/chat/completions"))
	fromBody := c2.body(`{"model":"any","conversation":{"id":"s-1"}}`).GetRequestBody().GetResponse()
	if got, want := picked(t, fromBody), picked(t, common); got != want {
		t.Errorf("body picks %s, header %s", got, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	dry := func(v *fleet.View) { v.Classes[0].Admitted = 0 }
	sick := func(v *fleet.View) {
		for _, p := range v.Classes[0].Pools {
			for i := range p.Engines {
				p.Engines[i].Readiness = fleet.Unready
			}
		}
	}
	tests := []struct {
		name   string
		change func(*fleet.View)
		body   string
		status int32
		code   string
		says   string
	}{
		{"shed", dry, `{"model":"small"}`, 429, "overloaded", "retry later"},
		{"no engine", sick, `{"model":"small"}`, 503, "no_engine", "no engine"},
		{"unknown model", nil, `{"model":"a\"b<c>"}`, 404, "model_not_found", "the model `a\"b<c>` is not served"},
		{"huge model", nil, `{"model":"x` + strings.Repeat("ü", 5000) + `"}`, 404, "model_not_found", "ü…` is not served"},
		{"model in another case", nil, `{"Model":"small"}`, 400, "model_unreadable", `no string "model"`},
		{"model is no string", nil, `{"model":7}`, 400, "model_unreadable", `no string "model"`},
		{"model is null", nil, `{"model":null}`, 400, "model_unreadable", `no string "model"`},
		{"model is empty", nil, `{"model":""}`, 400, "model_unreadable", `no string "model"`},
		{"model twice", nil, `{"model":"small","model":"big"}`, 400, "model_unreadable", "repeated key"},
		{"no object", nil, `["model"]`, 400, "model_unreadable", "not a JSON object"},
		{"no JSON", nil, `{"model":"small"`, 400, "model_unreadable", "not valid JSON at byte 16"},
		{"trailing", nil, `{"model":"small"} x`, 400, "model_unreadable", "not valid JSON"},
		{"empty", nil, ``, 400, "model_unreadable", "not valid JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v := twoPools()
			if tt.change != nil {
				tt.change(v)
			}
			_, conn := serve(t, v)
			c := open(t, conn)
			c.headers(post("/v1/chat/completions"))
			got := c.body(tt.body).GetImmediateResponse()
			if int32(got.GetStatus().GetCode()) != tt.status {
				t.Fatalf("got %v, want status %d", got, tt.status)
			}
			checkError(t, got, tt.code, tt.says)
		})
	}
}

// checkError reads a refusal as OpenAI's clients do.
func checkError(t *testing.T, got *extprocv3.ImmediateResponse, code, says string) {
	t.Helper()
	var body struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(got.GetBody(), &body); err != nil {
		t.Fatalf("body %q: %v", got.GetBody(), err)
	}
	if body.Error.Code != code || !strings.Contains(body.Error.Message, says) || body.Error.Type == "" {
		t.Errorf("got %+v, want code %q and a message with %q", body.Error, code, says)
	}
	if len(got.GetBody()) > 1000 {
		t.Errorf("the body has %d bytes", len(got.GetBody()))
	}
	set := mutations(&extprocv3.CommonResponse{HeaderMutation: got.GetHeaders()})
	if set["content-type"] != "application/json" {
		t.Errorf("headers %v, want a JSON content-type", set)
	}
	if after, ok := set["retry-after"]; ok != (code == "overloaded" || code == "no_engine") {
		t.Errorf("retry-after is %q", after)
	}
}

// Engines read the body of a GET, so that it is decided for like any other.
func TestBodyOfAGet(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	c := open(t, conn)
	get := withBody(request("GET", "/v1/chat/completions", "content-type: application/json"))
	if got := c.headers(get); got.GetModeOverride() == nil {
		t.Fatalf("got %v, want the body asked for", got)
	}
	got := c.body(`{"model":"small"}`)
	if e := picked(t, got.GetRequestBody().GetResponse()); e == "" || s.Counters().Admitted.Load() != 1 {
		t.Errorf("picked %q, counted %+v", e, s.Take())
	}
}

// A GET's body that turns out to be empty is none.
func TestEmptyBody(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	c := open(t, conn)
	c.headers(withBody(request("GET", "/v1/models")))
	if diff := cmp.Diff(onRequestBody(pass()), c.body(""), protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if n := s.Counters().PassedThrough.Load(); n != 1 {
		t.Errorf("passed through: %d, want 1", n)
	}
}

func TestPassThrough(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	want := onRequestHeaders(pass())
	for _, m := range []*extprocv3.HttpHeaders{
		request("GET", "/v1/models"),
		request("HEAD", "/"),
		{Headers: post("/v1/x").Headers, EndOfStream: true},
	} {
		got := open(t, conn).headers(m)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", m, diff)
		}
	}
	if n := s.Counters().PassedThrough.Load(); n != 3 {
		t.Errorf("passed through: %d, want 3", n)
	}
	if got := s.Take(); got != nil {
		t.Errorf("counted %v, want nothing", got)
	}
}

// Every kind of message that needs no decision is answered with its own kind,
// after a decision and before it.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, twoPools())
	c := open(t, conn)
	others := []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}},
	}
	kindOf := func(m proto.Message) string {
		r := m.ProtoReflect()
		return string(r.WhichOneof(r.Descriptor().Oneofs().ByName("request")).Name())
	}
	check := func() {
		t.Helper()
		for _, m := range others {
			got := c.ask(m).ProtoReflect()
			field := got.WhichOneof(got.Descriptor().Oneofs().ByName("response"))
			if field == nil || string(field.Name()) != kindOf(m) {
				t.Errorf("%s answered with %v", kindOf(m), got)
			}
		}
	}
	check()
	c.headers(post("/v1/chat/completions"))
	if c.body(`{"model":"none"}`).GetImmediateResponse() == nil {
		t.Error("want a refusal")
	}
	check()
	if got := c.headers(post("/")); got.GetModeOverride() != nil || got.GetRequestHeaders() == nil {
		t.Errorf("headers once more: %v, want an empty answer", got)
	}
}

func TestServesOnceItHasATable(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, nil)
	health := healthv1.NewHealthClient(conn)
	check := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		got, err := health.Check(ctx, &healthv1.HealthCheckRequest{})
		if err != nil || got.GetStatus() != want {
			t.Fatalf("health %v, %v, want %v", got, err, want)
		}
	}
	check(healthv1.HealthCheckResponse_NOT_SERVING)
	c := open(t, conn)
	if _, err := c.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("without a table: %v, want Unavailable", err)
	}
	if n := s.Counters().NoTable.Load(); n != 1 {
		t.Errorf("%d requests counted that found no table, want 1", n)
	}
	s.Swap(NewTable(twoPools()))
	check(healthv1.HealthCheckResponse_SERVING)
	s.Drain()
	check(healthv1.HealthCheckResponse_NOT_SERVING)
	s.Swap(NewTable(twoPools()))
	check(healthv1.HealthCheckResponse_NOT_SERVING)
}

// However a stream ends, it is in flight once and then not at all, although the
// table has changed meanwhile.
func TestInFlightThroughEveryEnd(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Classes[0].Pools = []fleet.ViewPool{viewPool("east", 1, 1)}
	s, conn := serve(t, v)
	engine := v.Classes[0].Pools[0].Engines[0].ID
	admit := func() *client {
		c := open(t, conn)
		c.headers(post("/v1/chat/completions"))
		if c.body(`{"model":"small"}`).GetRequestBody() == nil {
			t.Fatal("not admitted")
		}
		return c
	}
	a, b, d := admit(), admit(), admit()
	if n := openAt(s, engine); n != 3 {
		t.Fatalf("in flight: %d, want 3", n)
	}
	s.Swap(NewTable(&fleet.View{}))
	a.cancel()
	eventually(t, "two in flight", func() bool { return openAt(s, engine) == 2 })
	b.ask(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}})
	b.end()
	eventually(t, "one in flight", func() bool { return openAt(s, engine) == 1 })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "none in flight", func() bool { return openAt(s, engine) == 0 })
	d.cancel()
	if n := s.Counters().StreamFaults.Load(); n != 0 {
		t.Errorf("%d ends were taken for faults", n)
	}
}

// What cannot be read is not sent for; why is counted.
func TestUnreadableKinds(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	const chat = "/v1/chat/completions"
	for _, m := range []*extprocv3.HttpHeaders{
		request("POST", chat, "content-type: text/plain"),
		post(chat, "content-encoding: br"),
	} {
		got := open(t, conn).headers(m).GetImmediateResponse()
		if got.GetStatus().GetCode() != 400 {
			t.Errorf("got %v, want status 400 without the body", got)
		}
	}
	for _, body := range []string{`[]`, `{`, `{}`, `{"a":1,"a":1}`} {
		ask(t, open(t, conn), body)
	}
	ask(t, open(t, conn), string(gzipped(t, strings.Repeat(" ", 2*minInflated))), "content-encoding: gzip")
	c := s.Counters()
	got := []uint64{
		c.ContentType.Load(), c.Encoding.Load(), c.NotObject.Load(), c.Syntax.Load(),
		c.NoModel.Load(), c.Duplicate.Load(), c.TooLarge.Load(), c.Unreadable.Load(),
	}
	if diff := cmp.Diff([]uint64{1, 1, 1, 1, 1, 1, 1, 7}, got); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	s := New(zaptest.NewLogger(t))
	for _, usual := range []error{io.EOF, status.Error(codes.Canceled, "reset")} {
		if err := s.ended(usual); err != nil {
			t.Errorf("%v is taken for a fault", usual)
		}
	}
	if err := s.ended(status.Error(codes.ResourceExhausted, "too large")); err == nil || s.Counters().StreamFaults.Load() != 1 {
		t.Errorf("got %v and %d faults, want the error and one", err, s.Counters().StreamFaults.Load())
	}
}

// Messages beyond gRPC's usual 4 MiB arrive.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	_, conn := serve(t, twoPools())
	c := open(t, conn)
	c.headers(post("/v1/chat/completions"))
	got := c.body(`{"pad":"` + strings.Repeat("y", 8<<20) + `","model":"small"}`)
	if mutations(got.GetRequestBody().GetResponse())["x-weir-model"] != "small" {
		t.Errorf("got %v", got)
	}
}
