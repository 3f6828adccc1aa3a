package outcome

// usage is the tokens of one request.
type usage struct {
	prompt, output float64
	estimated      bool
	believable     bool // output was said, or estimated by what other answers said
}

// ratio is how many tokens a byte is worth, learned from answers that say.
type ratio struct{ tokens, bytes, learned float64 }

const (
	memory = 0.99 // what one more answer leaves of the earlier ones
	enough = 20   // answers after which a ratio is believed
)

func (r *ratio) learn(tokens float64, bytes uint64) {
	r.tokens = memory*r.tokens + tokens
	r.bytes = memory*r.bytes + float64(bytes)
	r.learned++
}

func (r *ratio) of(bytes uint64) float64 { return r.tokens / r.bytes * float64(bytes) }

// ratios are those of a class: of its prompts, and of its streamed answers. An
// answer in one piece never says its tokens here; its text is like a prompt's.
type ratios struct{ prompt, stream ratio }

// newRatios begins with four bytes a token of text, and 250 bytes an event.
func newRatios() ratios {
	return ratios{ratio{tokens: 250, bytes: 1000}, ratio{tokens: 4, bytes: 1000}}
}

// usage is what an answer says, and learns from it; what it does not say is
// estimated.
func (c *class) usage(e *entry) usage {
	u := usage{e.prompt.value, e.output.value, false, true}
	if e.prompt.known && e.asked > 0 {
		c.ratios.prompt.learn(u.prompt, e.asked)
	} else if !e.prompt.known {
		u.prompt, u.estimated = c.ratios.prompt.of(e.asked), true
	}
	switch {
	case e.output.known && e.stream && e.answered > 0:
		c.ratios.stream.learn(u.output, e.answered)
	case e.output.known:
	case e.stream:
		u.output, u.estimated = c.ratios.stream.of(e.answered), true
		u.believable = c.ratios.stream.learned >= enough
	default:
		u.output, u.estimated, u.believable = c.ratios.prompt.of(e.answered), true, false
	}
	return u
}
