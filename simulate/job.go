package simulate

import "math"

// job is one request on its way.
type job struct {
	Request
	luck    uint64 // of this request, whatever becomes of it
	arrived float64
	engine  int32

	reached float64 // its engine
	cached  int     // tokens of the prompt
	queue   float64 // seconds, once there is a slot
	prefill float64 // seconds
	beats   float64 // of the batch's clock, after the first token
	joined  float64 // clock at the first token
	first   float64 // time of the first token, at the engine
	seen    float64 // and at the client; 0: not yet
	left    float64 // time of the end, at the engine; 0: not yet
	free    int32   // next free place; the list of free places ends with none
}

const none = -1

// jobs keeps requests in places that are used again.
type jobs struct {
	all  []job
	free int32
}

func newJobs() *jobs { return &jobs{free: none} }

// at returns a request. The pointer is good until another is added.
func (j *jobs) at(id int32) *job { return &j.all[id] }

func (j *jobs) add(r Request, luck uint64) int32 {
	id := j.free
	if id == none {
		id = int32(len(j.all))
		j.all = append(j.all, job{})
	} else {
		j.free = j.all[id].free
	}
	j.all[id] = job{Request: r, luck: luck}
	return id
}

func (j *jobs) drop(id int32) {
	j.all[id] = job{free: j.free}
	j.free = id
}

// stretch is the factor of one wait: the same for the same request and wait, whatever
// the policy, so that policies are compared under the same luck.
func (j *job) stretch(wait uint64, jitter, slow float64) float64 {
	return slow * (1 + jitter*(2*unit(mix(j.luck+wait))-1))
}

// stretchMean is the mean factor of the waits between the request's tokens. That of
// many even draws is very nearly normal.
func (j *job) stretchMean(jitter, slow float64) float64 {
	if jitter == 0 || j.Output < 2 {
		return slow
	}
	return slow * max(0, 1+jitter*normal(mix(j.luck+2))/math.Sqrt(3*float64(j.Output-1)))
}

// normal turns a hash into a draw of the standard normal distribution.
func normal(hash uint64) float64 {
	return math.Sqrt(-2*math.Log(unit(hash))) * math.Cos(2*math.Pi*unit(mix(hash)))
}
