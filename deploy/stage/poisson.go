package stage

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Arrive calls send at the times of a Poisson process of so many per second, as
// independent clients do, until the context ends; then it waits for the calls
// under way. i counts them from 0.
func Arrive(ctx context.Context, rps float64, seed uint64, send func(i int)) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var under sync.WaitGroup
	defer under.Wait()
	next := time.Now()
	for i := 0; ; i++ {
		next = next.Add(time.Duration(rng.ExpFloat64() / rps * float64(time.Second)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		under.Go(func() { send(i) })
	}
}
