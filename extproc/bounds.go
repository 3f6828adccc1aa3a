package extproc

// Bounds of a body besides its size, so that none of the largest size takes a
// good part of the second that Envoy waits: names are remembered to find
// repetitions, a value costs more than its bytes, and so does an escape.
const (
	maxNames     = 100_000   // of members, in all objects together
	maxNameBytes = 4 << 20   // that all names take, as they are written
	maxValues    = 2_000_000 // commas and opening brackets: no fewer than there are values
	maxUnescaped = 4 << 20   // bytes of strings up to which escapes are read
)

// counts are what is bounded.
type counts struct{ names, nameBytes, values int }

func (c *counts) tooMany() bool {
	return c.names > maxNames || c.nameBytes > maxNameBytes || c.values > maxValues
}
