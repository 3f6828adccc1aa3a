package discover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/fleet"
)

// maxFileBytes is more than MaxPoolEngines lines with comments take.
const maxFileBytes = 1 << 20

// files reads files. A reading may never end, as of a mount whose server is gone, and
// cannot be stopped: a look waits no longer than it may, and of one file there is never
// more than one reading under way.
type files struct {
	read  func(path string) (string, error)
	under singleflight.Group // by path
}

func (f *files) text(ctx context.Context, path string) (string, error) {
	done := f.under.DoChan(path, func() (any, error) { return f.read(path) })
	select {
	case r := <-done:
		text, _ := r.Val.(string)
		return text, r.Err
	case <-ctx.Done():
		return "", fmt.Errorf("%s: cannot be read in time, as if the machine that has it were gone: %w", path, ctx.Err())
	}
}

// look reads a file that lists a pool's engines. It is read anew each time: that
// survives every way of replacing it, of the links that lead to it too.
func (f *files) look(d fleet.Discovery) look {
	return func(ctx context.Context) (named, time.Duration, error) {
		text, err := f.text(ctx, d.Where)
		if err != nil {
			return named{}, 0, err
		}
		engines, err := parseList(text)
		if err != nil {
			return named{}, 0, fmt.Errorf("%s:%w", d.Where, err)
		}
		return named{engines: engines}, 0, nil
	}
}

// readFile reads a regular file of bounded size; opening or reading another may never
// end.
func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFileBytes)
	}
	return string(text), err
}

// errCut is that of a file that may have been read while it was written.
var errCut = errors.New("the last line does not end in a line break: the file may be cut off; replace it by renaming another to it")

// parseList reads ip:port a line; what follows a # is a comment. A list with a mistake
// is refused as a whole: what else is wrong with it nobody knows. Errors begin with
// the line's number.
func parseList(text string) ([]fleet.EngineID, error) {
	var engines []fleet.EngineID
	seen := map[fleet.EngineID]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		address, _, _ := strings.Cut(line, "#")
		address = strings.TrimSpace(address)
		if address != "" {
			engine, err := fleet.ParseEngine(address)
			switch {
			case err != nil:
				return nil, fmt.Errorf("%d: %w", n, err)
			case seen[engine] > 0:
				return nil, fmt.Errorf("%d: engine %s stands in line %d already", n, engine, seen[engine])
			}
			seen[engine] = n
			engines = append(engines, engine)
		}
		if !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("%d: %w", n, errCut)
		}
	}
	return engines, nil
}
