package deploy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"weir/deploy/stage"
	"weir/fleet"
)

const (
	chaosModel = "llama-3.3-70b"
	// chaosPatience is how long a client waits: nothing may take so long.
	chaosPatience = 60 * time.Second
	chaosRetries  = 2 // of a client, as SDKs do
	chaosTurns    = 4 // of a conversation
	// goldPart is that of the requests.
	goldPart = 0.2
	// followPart is the part of the requests that belong to conversations of several
	// turns.
	followPart = 0.25
)

// asked is one attempt of a client.
type asked struct {
	frontEnd fleet.FrontEndID
	gold     bool
	name     string // of the conversation
	turn     int
	attempt  int // from 0
	stage.Reply
}

// chaosLoad is what clients ask for while things go wrong: Poisson arrivals of requests
// of their own, and of conversations.
type chaosLoad struct {
	t       *testing.T
	stage   *stage.Stage
	tokens  int // of an answer
	retries int
	prefix  string

	under sync.WaitGroup
	mu    sync.Mutex // guards all
	all   []asked
}

// offer asks for so many requests a second in all, for so long, and returns when no more
// begin.
func (l *chaosLoad) offer(ctx context.Context, rps float64, lasts time.Duration, seed uint64) {
	ctx, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	var streams sync.WaitGroup
	for i, fe := range l.stage.Fleet.FrontEnds {
		client := stage.NewClient()
		each := rps / float64(len(l.stage.Fleet.FrontEnds))
		for kind, part := range map[string]float64{"single": 1 - followPart, "talk": followPart / chaosTurns} {
			turns := map[string]int{"single": 1, "talk": chaosTurns}[kind]
			number := seed*100 + uint64(i)*10 + uint64(turns)
			streams.Go(func() { l.arrive(ctx, client, fe.ID, turns, each*part, number) })
		}
	}
	streams.Wait()
}

// arrive begins conversations until the context ends; those that have begun go on.
func (l *chaosLoad) arrive(ctx context.Context, client *http.Client, id fleet.FrontEndID, turns int, rps float64, seed uint64) {
	stage.Arrive(ctx, rps, seed, func(i int) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		name := fmt.Sprintf("%s-%d-%s-%d-%d", l.prefix, seed, id, turns, i)
		a := asked{frontEnd: id, gold: rng.Float64() < goldPart, name: name}
		l.under.Go(func() { l.converse(client, a, turns, rng.ExpFloat64()) })
	})
}

// converse holds one conversation, until a turn fails.
func (l *chaosLoad) converse(client *http.Client, a asked, turns int, think float64) {
	for a.turn = range turns {
		if !l.ask(client, a) {
			return
		}
		if a.turn < turns-1 {
			pause(l.t.Context(), time.Duration((0.5+think)*float64(time.Second)))
		}
	}
}

// pause waits as a user does who reads.
func pause(ctx context.Context, d time.Duration) {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	<-ctx.Done()
}

// ask sends a turn, again where a client would, and says whether it was answered.
func (l *chaosLoad) ask(client *http.Client, a asked) bool {
	for a.attempt = 0; ; a.attempt++ {
		a.Reply = stage.Do(l.t.Context(), client, l.call(a))
		ok := a.OK()
		wait, again := a.comesBack()
		a.Body = nil
		l.mu.Lock()
		l.all = append(l.all, a)
		l.mu.Unlock()
		if ok || !again || a.attempt == l.retries || l.t.Context().Err() != nil {
			return ok
		}
		pause(l.t.Context(), wait)
	}
}

// comesBack is when a client asks again: what OpenAI's SDKs do after 408, 409, 429, 5xx
// and lost connections.
func (a *asked) comesBack() (wait time.Duration, again bool) {
	if a.Err == nil && a.Status < 500 && a.Status != http.StatusTooManyRequests {
		return 0, false
	}
	if a.Err != nil && a.Status == http.StatusOK {
		return 0, false // a stream that broke off
	}
	if after, err := strconv.Atoi(a.Header.Get("retry-after")); err == nil && after <= 60 {
		return time.Duration(after) * time.Second, true
	}
	return time.Second / 2 << a.attempt, true
}

func (l *chaosLoad) call(a asked) stage.Call {
	headers := map[string]string{
		"x-test-id": fmt.Sprintf("%s/%d", a.name, a.turn), "x-session-id": a.name, "x-stainless-retry-count": strconv.Itoa(a.attempt),
	}
	if a.gold {
		headers["x-tier"] = "gold"
	}
	return stage.Call{URL: l.stage.URL(a.frontEnd), Body: stage.LongTurn(chaosModel, a.name, a.turn, l.tokens), Headers: headers, Timeout: chaosPatience}
}

// await waits for the conversations under way, and returns all that was asked.
func (l *chaosLoad) await() []asked {
	l.under.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}
