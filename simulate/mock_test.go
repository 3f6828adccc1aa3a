package simulate

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/fleet"
)

// mocked is the engine that is compared with the mock: prompts that are cached are
// cheap, the batch fills up at 1.1 times the capacity, and the KV cache is too small
// for all conversations.
var mocked = Engine{
	CapacityRps: 20, TTFT: Line{0.2, 0.5}, TBT: Line{0.008, 0.016},
	Reference: fleet.Tokens{Prompt: 400, Output: 40}, OutputTokenCost: 2,
	Window: 2, Slots: 24, KVTokens: 60_000, Block: 16, Jitter: 0.2,
}

// turnSeen is one request to the mock: as it was asked, and as its journal has it.
type turnSeen struct {
	name                      string
	talk                      uint64
	promptBytes, contextBytes int
	output                    int

	at       time.Time
	prompt   int
	cached   int
	load     float64
	ttft     float64 // seconds
	endToEnd float64
}

// A real mock engine and the simulated one serve the same conversations, which come
// to both at the same moments: lightly loaded, busy, and with a queue for the batch.
// What is cached and the load that requests meet may be 5 % apart, since an order that
// luck decides decides what is forgotten. How long requests take must be alike: samples
// so far apart are seen once in 10,000 times by chance, and no mean is 10 % off; 25 %
// where a queue makes much of how late a busy machine's timers are.
func TestEngineIsTheMock(t *testing.T) {
	bin := buildMock(t)
	for _, tt := range []struct {
		name        string
		load, apart float64
	}{{"light", 0.4, 0.1}, {"busy", 0.9, 0.1}, {"queueing", 1.3, 0.25}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			late := watchTimers(t)
			seen := askMock(t, bin, tt.load)
			compare(t, seen, tt.apart, late())
		})
	}
}

// compare has a simulated engine serve what the mock has served.
func compare(t *testing.T, seen []turnSeen, apart, late float64) {
	t.Helper()
	requests := make([]Request, len(seen))
	for i, s := range seen {
		r := Request{At: s.at.Sub(seen[0].at).Seconds(), Key: s.talk, Prompt: s.prompt, Output: s.output}
		for k := range s.contextBytes / 64 {
			r.Context = append(r.Context, mix(mix(s.talk)^uint64(k)))
		}
		requests[i] = r
	}
	done, _ := alone(mocked, requests)
	var mock, ours struct{ ttft, endToEnd, load, cached []float64 }
	meter := meter{capacity: mocked.CapacityRps, window: mocked.Window}
	for i, s := range seen {
		mock.ttft, mock.endToEnd = append(mock.ttft, s.ttft), append(mock.endToEnd, s.endToEnd)
		mock.load, mock.cached = append(mock.load, s.load), append(mock.cached, float64(s.cached))
		j := &done[i]
		ours.ttft, ours.endToEnd = append(ours.ttft, j.first-j.reached), append(ours.endToEnd, j.seen-j.reached)
		work := mocked.Work(float64(j.Prompt-j.cached), float64(j.Output))
		ours.load, ours.cached = append(ours.load, meter.arrive(j.reached, work)), append(ours.cached, float64(j.cached))
	}
	t.Logf("timers %.1f ms late; %d requests; mean load %.2f and %.2f, cached %.0f and %.0f tokens, TTFT %.3f and %.3f s, end to end %.3f and %.3f s", 1000*late, len(seen),
		mean(mock.load), mean(ours.load), mean(mock.cached), mean(ours.cached),
		mean(mock.ttft), mean(ours.ttft), mean(mock.endToEnd), mean(ours.endToEnd))
	within(t, "load that requests meet", mean(ours.load), mean(mock.load), 0.05)
	within(t, "tokens cached", mean(ours.cached), mean(mock.cached), 0.05)
	if late > mostLate {
		t.Skip("this machine is too busy to say how long requests take")
	}
	for _, x := range []struct {
		what       string
		ours, mock []float64
	}{{"TTFT", ours.ttft, mock.ttft}, {"end to end", ours.endToEnd, mock.endToEnd}} {
		within(t, x.what+": mean", mean(x.ours), mean(x.mock), apart)
		if d, most := distance(x.ours, x.mock), chance(len(x.ours), len(x.mock)); d > most {
			t.Errorf("%s: the distributions are %.3f apart, want at most %.3f", x.what, d, most)
		}
	}
}

// mostLate is how late timers may be in the mean, seconds, for times to be judged by.
const mostLate = 0.003

// watchTimers measures how late timers are until the result is asked for.
func watchTimers(t *testing.T) (mean func() float64) {
	done, result := make(chan struct{}), make(chan float64)
	go func() {
		sum, n := 0.0, 0.0
		for {
			due := time.Now().Add(5 * time.Millisecond)
			select {
			case <-time.After(time.Until(due)):
				sum += time.Since(due).Seconds()
				n++
			case <-done:
				result <- sum / n
				return
			case <-t.Context().Done():
				return
			}
		}
	}()
	return func() float64 {
		close(done)
		return <-result
	}
}

func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if !(math.Abs(got-want) <= part*want) {
		t.Errorf("%s: %.4f here, %.4f at the mock engine, more than %.0f %% apart", what, got, want, 100*part)
	}
}

func buildMock(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "mock-engine")
	c := exec.Command("go", "build", "-o", bin, "weir/cmd/mock-engine")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// askMock loads a mock engine with conversations for some seconds and returns what it
// noted, by arrival.
func askMock(t *testing.T, bin string, load float64) []turnSeen {
	t.Helper()
	journal := filepath.Join(t.TempDir(), "journal")
	url := startMock(t, bin, journal)
	luck := rand.New(rand.NewPCG(5, uint64(100*load)))
	const turns, work, lasts = 3.6, 0.25, 4.0 // means; seconds
	rate := load * mocked.CapacityRps / turns / work
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	var talks sync.WaitGroup
	var mu sync.Mutex // guards asked
	asked := map[string]turnSeen{}
	at := 0.0
	began := time.Now()
	for k := uint64(1); at < lasts; k++ {
		at += luck.ExpFloat64() / rate
		own := rand.New(rand.NewPCG(6, k))
		start := began.Add(time.Duration(at * float64(time.Second)))
		talks.Go(func() {
			speak(t, client, url, k, own, start, func(s turnSeen) {
				mu.Lock()
				defer mu.Unlock()
				asked[s.name] = s
			})
		})
	}
	talks.Wait()
	return readJournal(t, journal, asked)
}

// speak holds a conversation of a geometric number of turns.
func speak(t *testing.T, client *http.Client, url string, k uint64, luck *rand.Rand, at time.Time, note func(turnSeen)) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var said []message
	bytesOf := func() (n int) {
		for _, m := range said {
			n += len(m.Role) + len(m.Content)
		}
		return n
	}
	for turn := 0; turn == 0 || turn < 10 && luck.Float64() < 0.75; turn++ {
		select {
		case <-time.After(time.Until(at)):
		case <-t.Context().Done():
			return
		}
		words := strings.Repeat(fmt.Sprintf("talk %d turn %d. ", k, turn), 1+int(30*luck.ExpFloat64()))
		said = append(said, message{"user", words})
		s := turnSeen{name: fmt.Sprintf("%d-%d", k, turn), talk: k, promptBytes: bytesOf(), output: 2 + int(40*luck.ExpFloat64())}
		body, _ := json.Marshal(map[string]any{"model": "mock", "messages": said, "max_tokens": s.output})
		answer, err := ask(client, url, s.name, body)
		if err != nil {
			t.Error(err)
			return
		}
		said = append(said, message{"assistant", answer})
		s.contextBytes = bytesOf()
		note(s)
		at = time.Now().Add(time.Duration((0.1 + 0.4*luck.ExpFloat64()) * float64(time.Second)))
	}
}

func ask(client *http.Client, url, name string, body []byte) (string, error) {
	r, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("x-test-id", name)
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Choices) != 1 {
		return "", fmt.Errorf("request %s: status %d, %v", name, response.StatusCode, err)
	}
	return answer.Choices[0].Message.Content, nil
}

// startMock starts the mock engine with the flags of the simulated one and returns its
// URL.
func startMock(t *testing.T, bin, journal string) string {
	t.Helper()
	number := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	duration := func(x float64) string { return number(x) + "s" }
	e := &mocked
	c := exec.Command(bin, "--listen", "127.0.0.1:0", "--log", journal,
		"--capacity", number(e.CapacityRps), "--window", duration(e.Window), "--jitter", number(e.Jitter),
		"--ttft", duration(e.TTFT.Idle), "--ttft-full", duration(e.TTFT.Full),
		"--tbt", duration(e.TBT.Idle), "--tbt-full", duration(e.TBT.Full),
		"--reference-prompt", number(e.Reference.Prompt), "--reference-output", number(e.Reference.Output),
		"--output-cost", number(e.OutputTokenCost),
		"--slots", strconv.Itoa(e.Slots), "--kv-tokens", strconv.Itoa(e.KVTokens), "--block-size", strconv.Itoa(e.Block))
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("the mock engine says %q, %v", line, err)
	}
	return "http://" + address
}

// readJournal joins the two lines of each request with what was asked.
func readJournal(t *testing.T, name string, asked map[string]turnSeen) []turnSeen {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64]string{}
	for line := range bytes.Lines(text) {
		var e struct {
			Event  string
			ID     uint64
			Time   time.Time
			Prompt int     `json:"promptTokens"`
			Cached int     `json:"cachedTokens"`
			Load   float64 `json:"utilisation"`
			TTFT   float64 `json:"ttftSeconds"`

			Headers map[string]string
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Event == "arrival" {
			names[e.ID] = e.Headers["x-test-id"]
		}
		s := asked[names[e.ID]]
		if e.Event == "arrival" {
			s.at, s.prompt, s.cached, s.load = e.Time, e.Prompt, e.Cached, e.Load
		} else {
			s.ttft, s.endToEnd = e.TTFT, e.Time.Sub(s.at).Seconds()
		}
		asked[names[e.ID]] = s
	}
	var all []turnSeen
	for _, s := range asked {
		if s.prompt != s.promptBytes/4 || s.ttft == 0 {
			t.Fatalf("request %+v: want a prompt of %d tokens, and an answer", s, s.promptBytes/4)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b turnSeen) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	if len(all) < 50 {
		t.Fatalf("%d requests are too few to judge by", len(all))
	}
	return all
}
