package simulate

// kvCache is an engine's KV cache as far as it outlives requests: blocks of tokens,
// each known by the hash of everything from the prompt's start to its end, of which
// the one used longest ago is forgotten first. Most of a run's time is spent here.
type kvCache struct {
	most   int
	blocks []block // blocks[0] is both ends of the ring
	slots  []slot  // an open hash table with linear probing; a power of two, at most half full
}

// block stands in a ring from the one used last to the one used longest ago.
type block struct {
	hash          uint64
	before, after int32
}

// slot says where a block is; at 0 it is empty.
type slot struct {
	hash uint64
	at   int32
}

const firstSlots = 64

func newKVCache(most int) *kvCache {
	return &kvCache{most: max(1, most), blocks: make([]block, 1), slots: make([]slot, firstSlots)}
}

// find returns how many blocks of a text are there, from its start without a gap.
// They count as used.
func (c *kvCache) find(text []uint64) int {
	for i, hash := range text {
		at := c.slots[c.probe(hash)].at
		if at == 0 {
			return i
		}
		c.touch(at)
	}
	return len(text)
}

// add takes a text in. Its start counts as used after its end, which is of no use
// without it.
func (c *kvCache) add(text []uint64) {
	for i := len(text) - 1; i >= 0; i-- {
		if at := c.slots[c.probe(text[i])].at; at != 0 {
			c.touch(at)
		} else {
			c.insert(text[i])
		}
	}
}

func (c *kvCache) insert(hash uint64) {
	at := int32(len(c.blocks))
	if len(c.blocks) <= c.most {
		c.blocks = append(c.blocks, block{})
		if 2*len(c.blocks) > len(c.slots) {
			c.grow()
		}
	} else {
		at = c.blocks[0].before
		c.remove(c.blocks[at].hash)
		c.unlink(at)
	}
	c.blocks[at].hash = hash
	c.slots[c.probe(hash)] = slot{hash, at}
	c.link(at)
}

// probe returns the index of the slot that has the hash, or where it would be.
func (c *kvCache) probe(hash uint64) uint64 {
	mask := uint64(len(c.slots) - 1)
	i := hash & mask
	for c.slots[i].at != 0 && c.slots[i].hash != hash {
		i = (i + 1) & mask
	}
	return i
}

// remove empties a slot and moves those up that were put behind it for want of room.
func (c *kvCache) remove(hash uint64) {
	mask := uint64(len(c.slots) - 1)
	hole := c.probe(hash)
	for i := (hole + 1) & mask; c.slots[i].at != 0; i = (i + 1) & mask {
		home := c.slots[i].hash & mask
		if (i-home)&mask >= (i-hole)&mask {
			c.slots[hole] = c.slots[i]
			hole = i
		}
	}
	c.slots[hole] = slot{}
}

func (c *kvCache) grow() {
	old := c.slots
	c.slots = make([]slot, 2*len(old))
	for _, s := range old {
		if s.at != 0 {
			c.slots[c.probe(s.hash)] = s
		}
	}
}

func (c *kvCache) touch(at int32) {
	if c.blocks[0].after != at {
		c.unlink(at)
		c.link(at)
	}
}

func (c *kvCache) unlink(at int32) {
	b := &c.blocks[at]
	c.blocks[b.before].after = b.after
	c.blocks[b.after].before = b.before
}

// link puts a block in front.
func (c *kvCache) link(at int32) {
	first := c.blocks[0].after
	c.blocks[at].before, c.blocks[at].after = 0, first
	c.blocks[first].before, c.blocks[0].after = at, at
}
