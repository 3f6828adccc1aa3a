package main

import (
	"context"
	"errors"
	"time"
)

// errCut asks for the connection to be cut: an injected fault.
var errCut = errors.New("cut off after the tokens asked for")

// generate makes the job's tokens, each in its time, and hands them to emit. It
// ends early with the context, with an injected fault, or when emit fails.
func (e *engine) generate(ctx context.Context, j *job, emit func(piece string) error) error {
	leave, err := e.admit(ctx, j)
	if err != nil {
		return err
	}
	defer leave()
	_, gap := e.profile.firstToken(j.utilisation, j.prompt-j.cached)
	due := time.Now().Add(e.stretch(j, gap))
	if err := sleepUntil(ctx, due); err != nil {
		return err
	}
	e.prefilled(j)
	for j.made < j.output {
		if err := emit(e.token(j, time.Now())); err != nil {
			return err
		}
		switch j.made {
		case j.faults.CutAfter:
			return errCut
		case j.faults.StallAfter:
			<-ctx.Done()
			return ctx.Err()
		}
		if j.made == j.output {
			break
		}
		due = due.Add(e.stretch(j, e.tokenGap(time.Now())))
		if err := sleepUntil(ctx, due); err != nil {
			return err
		}
	}
	e.remember(j)
	return nil
}

// admit lets a job wait in the queue until a slot is free, and as long as the
// profile says, and then run. The caller must call leave at its end.
func (e *engine) admit(ctx context.Context, j *job) (leave func(), err error) {
	e.change(func(s *stats) { s.waiting++ })
	defer e.change(func(s *stats) { s.waiting-- })
	if j.faults.Hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	queue, _ := e.profile.firstToken(j.utilisation, j.prompt-j.cached)
	if err := sleepUntil(ctx, time.Now().Add(e.stretch(j, queue))); err != nil {
		<-e.slots
		return nil, err
	}
	e.change(func(s *stats) { s.running++; s.held += j.prompt })
	return func() { e.leave(j) }, nil
}

func (e *engine) leave(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.running--
	e.stats.held -= j.prompt + j.made
	if j.made > 0 {
		j.context.turn(turn{assistant, j.text})
		e.cache.add(j.context)
	}
	<-e.slots
}

// prefilled notes that a prompt was worked on.
func (e *engine) prefilled(j *job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache.add(j.context)
	e.stats.promptTokens += j.prompt
	e.stats.cachedTokens += j.cached
}

// token makes a token and counts it.
func (e *engine) token(j *job, now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j.made == 0 {
		j.firstToken = now
		e.stats.ttft.observe(now.Sub(j.arrived))
	} else {
		e.stats.interToken.observe(now.Sub(j.lastToken))
	}
	j.lastToken = now
	e.stats.held++
	e.stats.outputTokens++
	return j.make()
}

// sleepUntil returns at a time, or with the context's error when that ends first.
func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
