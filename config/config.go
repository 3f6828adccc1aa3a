// Package config reads a fleet file: YAML in the operator's words, turned into a
// validated [fleet.Fleet] or into every mistake that the file has, each at its
// line with what to do about it.
//
// A YAML library parses the file; what its tree means is read here, since a
// decoder into structs stops at the first mistake and forgets where values stood.
// The sections are read in the order in which they lean on one another (pools,
// classes, frontEnds, network, options), so that nearly every rule is checked
// where its value is read. docs/FLEET.md is the reference of the format.
package config

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"weir/fleet"
)

// Load reads a fleet file. Mistakes in it come back as [Problems].
func Load(path string) (*fleet.Fleet, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// LoadFrom reads a fleet file from a stream; name stands for it in messages.
func LoadFrom(name string, in io.Reader) (*fleet.Fleet, error) {
	data, err := readAll(name, in)
	if err != nil {
		return nil, err
	}
	return Parse(name, data)
}

// Read returns the text of a fleet file for [Parse], and no more of a file that
// is too large than shows it to be so. What is not a regular file is refused, as
// opening or reading it may never end.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("fleet file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("fleet file %s: not a regular file; check and plan read standard input where FILE is -", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("fleet file: %w", err)
	}
	defer f.Close()
	return readAll(path, f)
}

func readAll(name string, in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("fleet file %s: %w", name, err)
	}
	return data, nil
}

// Parse reads the text of a fleet file; name is the file's in messages. It
// returns a fleet that keeps every promise of [fleet.Fleet], or [Problems].
func Parse(name string, data []byte) (*fleet.Fleet, error) {
	d := &document{file: name, nodesLeft: maxNodes}
	r := reader{doc: d, engines: map[fleet.EngineID]string{}, listens: map[string]string{}, sources: map[fleet.Discovery]string{}}
	if root, ok := d.parse(data); ok {
		r.file(root)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	sortByID(&r.fleet)
	return &r.fleet, nil
}

// reader turns the tree into a fleet. It is what one section must know of those
// read before it.
type reader struct {
	doc      *document
	fleet    fleet.Fleet
	engines  map[fleet.EngineID]string  // the pool that listed each engine
	listens  map[string]string          // the front-end that took each address
	sources  map[fleet.Discovery]string // the pool that each source is of, times aside
	rules    []placedRule               // of all classes so far, in the order of matching
	doubtful bool                       // what some pool offers could not be read
}

func (r *reader) file(root node) {
	m := root.mapping("frontEnds", "pools", "network", "classes", "limits", "options")
	r.pools(m.must("pools"))
	r.classes(m.must("classes"))
	r.frontEnds(m.must("frontEnds"))
	r.network(m.at("network"))
	r.limits(m.at("limits"))
	r.options(m.at("options"))
}

func sortByID(f *fleet.Fleet) {
	slices.SortFunc(f.FrontEnds, func(a, b fleet.FrontEnd) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(f.Pools, func(a, b fleet.Pool) int { return cmp.Compare(a.ID, b.ID) })
	for i := range f.Pools {
		slices.Sort(f.Pools[i].Engines)
	}
}
