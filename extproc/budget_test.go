package extproc

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weir/fleet"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(turns float64) time.Time { return began.Add(time.Duration(turns * float64(turnTime))) }
	fresh := func() *budget { return &budget{limit: 100, began: began} }
	mustAsk := func(b *budget, bytes int64, now time.Time, want bool) claim {
		t.Helper()
		c, ok := b.ask(bytes, now)
		if ok != want {
			t.Errorf("asked for %d at %v: %v, want %v", bytes, now.Sub(began), ok, want)
		}
		return c
	}

	b := fresh()
	first := mustAsk(b, 60, at(0), true)
	mustAsk(b, 41, at(0), false)
	mustAsk(b, 40, at(0), true)
	b.release(first, at(0.5))
	mustAsk(b, 60, at(0.9), true)

	b = fresh()
	mustAsk(b, 60, at(0.9), true)
	mustAsk(b, 60, at(1.1), false)
	mustAsk(b, 60, at(2.1), true) // the first is slow: it must claim again when it is here

	b = fresh()
	slow := mustAsk(b, 60, at(0), true)
	mustAsk(b, 60, at(2), true)
	if _, ok := b.receive(slow, 60, at(2.5)); ok {
		t.Error("a slow body took the room of others")
	}

	b = fresh()
	quick := mustAsk(b, 60, at(0), true)
	here, ok := b.receive(quick, 50, at(0.1))
	if !ok || b.held() != 50 {
		t.Errorf("a body that was asked for has no room: %v, %d held", ok, b.held())
	}
	mustAsk(b, 51, at(10), false) // what is here counts as long as it is here
	b.release(here, at(11))
	mustAsk(b, 1000, at(11), true) // alone
	mustAsk(b, 1, at(11), false)
}

// Whatever is asked for, comes and goes: the bound holds but for a body that is
// alone, and what is given back leaves nothing behind.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		b := &budget{limit: 1000, began: now}
		var due, here []claim
		take := func(from *[]claim) claim {
			i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
			c := (*from)[i]
			*from = append((*from)[:i], (*from)[i+1:]...)
			return c
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			bytes := rapid.Int64Range(0, 700).Draw(t, "bytes")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				if c, ok := b.ask(bytes, now); ok {
					due = append(due, c)
				}
			case 1:
				if len(due) > 0 {
					if c, ok := b.receive(take(&due), bytes, now); ok {
						here = append(here, c)
					}
				}
			case 2:
				if len(due) > 0 {
					b.release(take(&due), now)
				}
			case 3:
				if len(here) > 0 {
					b.release(take(&here), now)
				}
			}
			var sum int64
			for _, c := range here {
				sum += c.bytes
			}
			if b.held() != sum || b.due[0] < 0 || b.due[1] < 0 {
				t.Fatalf("%d held and %v due, want %d held and nothing below 0", b.held(), b.due, sum)
			}
			if sum > b.limit && len(here) > 1 {
				t.Fatalf("%d bodies hold %d bytes of %d", len(here), sum, b.limit)
			}
		}
		for _, c := range append(due, here...) {
			b.release(c, now)
		}
		if b.held() != 0 || b.due != [2]int64{} {
			t.Fatalf("%d held and %v due at the end", b.held(), b.due)
		}
	})
}

// Bodies for which there is no room are not sent for: their class is decided by the
// headers if those can, else the client is asked to come again. However requests
// end, the room comes back.
func TestNoRoomForBodies(t *testing.T) {
	t.Parallel()
	v := twoPools()
	v.Routes = append([]fleet.ViewRoute{{Class: "chat", Rule: fleet.Rule{Path: "/chat/"}}}, v.Routes...)
	s, conn := serve(t, v)
	s.SetBudget(1000)
	big := "content-length: 900"
	first := open(t, conn)
	if first.headers(post("/v1/x", big)).GetModeOverride() == nil {
		t.Fatal("the first body is not asked for")
	}

	refused := open(t, conn).headers(post("/v1/x", big)).GetImmediateResponse()
	if refused.GetStatus().GetCode() != 503 {
		t.Errorf("got %v, want a 503", refused)
	}
	after, err := strconv.Atoi(string(refused.GetHeaders().GetSetHeaders()[1].GetHeader().GetRawValue()))
	if err != nil || after < 1 || after > 3 {
		t.Errorf("retry-after: %d, %v, want 1 to 3", after, err)
	}
	admitted := open(t, conn).headers(post("/chat/x", big)).GetRequestHeaders().GetResponse()
	if set := mutations(admitted); set["x-weir-admitted"] != "1" || set["x-weir-model"] != "" {
		t.Errorf("where the path decides: %v, want an admission", set)
	}

	body := fmt.Sprintf(`{"model":"small","x":"%0870d"}`, 0)
	if got := first.body(body); mutations(got.GetRequestBody().GetResponse())["x-weir-model"] != "small" {
		t.Errorf("the first body: %v", got)
	}
	gone := open(t, conn)
	if gone.headers(post("/v1/x", big)).GetModeOverride() == nil {
		t.Error("with the first body read there is no room for another")
	}
	gone.cancel()
	eventually(t, "the room of a request that ended early is free", func() bool {
		return open(t, conn).headers(post("/v1/x", big)).GetModeOverride() != nil
	})
	c := s.Counters()
	if busy, unread := c.Busy.Load(), c.Budget.Load(); busy == 0 || unread != busy+1 {
		t.Errorf("%d refused and %d not read, want one more", busy, unread)
	}
}

// A body whose length shows only when it is here may find no room then.
func TestNoRoomWhenTheBodyIsHere(t *testing.T) {
	t.Parallel()
	s, conn := serve(t, twoPools())
	s.SetBudget(unsaidLength + 1000)
	small, large := open(t, conn), open(t, conn)
	small.headers(post("/v1/x", "content-length: 900"))
	large.headers(post("/v1/x"))
	got := large.body(fmt.Sprintf(`{"model":"small","x":"%0*d"}`, unsaidLength+500, 0)).GetImmediateResponse()
	if got.GetStatus().GetCode() != 503 {
		t.Errorf("got %v, want a 503", got)
	}
}

// A body whose length is said to be over the limit is refused before it is sent.
func TestTooLong(t *testing.T) {
	t.Parallel()
	v := twoPools()
	s, conn := serve(t, v)
	for _, c := range []struct {
		length int64
		status int32
	}{{v.BodyLimit, 0}, {v.BodyLimit + 1, 413}, {1 << 62, 413}} {
		got := open(t, conn).headers(post("/v1/x", fmt.Sprint("content-length: ", c.length))).GetImmediateResponse()
		if int32(got.GetStatus().GetCode()) != c.status {
			t.Errorf("%d bytes: %v, want %d", c.length, got, c.status)
		}
	}
	if n := s.Counters().TooLong.Load(); n != 2 {
		t.Errorf("counted %d, want 2", n)
	}
}
