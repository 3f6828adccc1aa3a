package simulate

// Fewest is the answer to how many of something are needed.
type Fewest struct {
	Number   int  // 0: not even the most are enough
	Monotone bool // no number was seen to be enough while a larger one was not
}

// FewestThat finds by bisection the fewest, 1 to most, that are enough. It begins with
// start, and doubles until enough is found. It takes for granted that what is enough
// stays so with more, and looks whether one more than the answer is enough too; where
// it is not, it goes on above. No number is tried twice; an error of try ends it.
func FewestThat(start, most int, try func(n int) (bool, error)) (Fewest, error) {
	s := search{most: most, try: try, tried: map[int]bool{}}
	out := Fewest{Monotone: true}
	low := 0 // it is not enough
	for n := max(1, start); low < most; n = low + 1 {
		high := s.bisect(s.double(low, min(n, most)))
		if high == 0 || high == most || s.enough(high+1) || s.err != nil {
			out.Number = high
			break
		}
		out.Monotone = false
		low = high + 1
	}
	return out, s.err
}

// search remembers what was tried, and the first error, after which nothing is.
type search struct {
	most  int
	try   func(n int) (bool, error)
	tried map[int]bool
	err   error
}

func (s *search) enough(n int) bool {
	ok, known := s.tried[n]
	if known || s.err != nil {
		return ok
	}
	s.tried[n], s.err = s.try(n)
	return s.tried[n]
}

// double returns numbers of which the first is not enough and the second is, from n on;
// the second is 0 if none up to the most is.
func (s *search) double(low, n int) (int, int) {
	for !s.enough(n) {
		if n == s.most || s.err != nil {
			return low, 0
		}
		low, n = n, min(2*n, s.most)
	}
	return low, n
}

// bisect returns the least that is enough above low, of those up to high.
func (s *search) bisect(low, high int) int {
	for high-low > 1 && s.err == nil {
		if middle := low + (high-low)/2; s.enough(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}
