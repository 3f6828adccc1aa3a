package main

import (
	"hash"
	"hash/fnv"
	"slices"
)

// cache is the KV cache as far as it outlives requests: blocks of tokens, each
// known by the hash of everything from the prompt's start to the block's end. What
// running requests hold is not kept apart: they used their blocks last.
type cache struct {
	blocks *lru[uint64, struct{}]
	block  int // tokens
}

func newCache(tokens, block int) *cache {
	return &cache{newLRU[uint64, struct{}](max(1, tokens/block)), block}
}

// find returns how many tokens at the start of a text are in the cache. The last
// token of the text is never one of them: something must be computed to go on from.
func (c *cache) find(p *prefixes) (tokens int) {
	for _, end := range p.ends[:min(len(p.ends), (p.tokens()-1)/c.block)] {
		if _, ok := c.blocks.get(end); !ok {
			break
		}
		tokens += c.block
	}
	return tokens
}

// add takes a text in. The start of a text counts as used after its end, so that
// the end, which is of no use without the start, is forgotten first.
func (c *cache) add(p *prefixes) {
	for _, end := range slices.Backward(p.ends) {
		c.blocks.put(end, struct{}{})
	}
}

// prefixes are the hashes of the start of a text up to the end of each block. The
// text may grow.
type prefixes struct {
	size   int // bytes of a block
	length int // bytes of the text
	hash   hash.Hash64
	ends   []uint64
}

// newPrefixes starts an empty text of a model, whose cache is its own.
func newPrefixes(model string, block int) *prefixes {
	p := &prefixes{size: block * bytesPerToken, hash: fnv.New64a()}
	_, _ = p.hash.Write([]byte(model + "\x00")) // a hash takes everything
	return p
}

func (p *prefixes) write(text string) {
	for len(text) > 0 {
		n := min(len(text), p.size-p.length%p.size)
		_, _ = p.hash.Write([]byte(text[:n]))
		p.length += n
		if p.length%p.size == 0 {
			p.ends = append(p.ends, p.hash.Sum64())
		}
		text = text[n:]
	}
}

func (p *prefixes) turn(t turn) {
	p.write(t.role)
	p.write(t.text)
}

// tokens is how many the text is taken for: at least one.
func (p *prefixes) tokens() int { return max(1, p.length/bytesPerToken) }
