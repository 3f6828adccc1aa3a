package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"weir/fleet"
)

// Store is a directory that keeps the last plan, what operators have ordered, and what
// pools showed, over restarts.
type Store struct{ Dir string }

// Saved is what a store keeps: all that is needed to act on the last plan when
// nothing else is there.
type Saved struct {
	At    time.Time   `json:"at"`
	Plan  *fleet.Plan `json:"plan"`
	Fleet string      `json:"fleet"` // text of the fleet file that the plan was made for
	// Engines are those of the pools whose engines do not stand in the fleet file.
	Engines map[fleet.PoolID][]fleet.EngineID `json:"engines,omitempty"`
}

// storeFormat is the version of the file's form. Reading another one is an error.
const storeFormat = 1

const (
	storeFile    = "plan.json"
	ordersFile   = "orders.json"
	historyFile  = "history.json"
	refused      = ".refused" // behind a name, and when
	lockFile     = "lock"
	maxStoreSize = 256 << 20 // bytes; a plan of 300 front-ends, 2,000 pools and 20 classes is a tenth
)

// envelope is the form of the files. Sum guards against a torn or edited one.
type envelope struct {
	Format int             `json:"format"`
	Sum    string          `json:"sha256"` // of Saved as it stands in the file
	Saved  json.RawMessage `json:"saved"`
}

// Lock makes this process the one that saves here, until it ends. Two control planes
// on one directory would overwrite one another's plans.
func (s Store) Lock() error {
	if err := os.MkdirAll(s.Dir, 0o750); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	// Not an os.File: that would be closed, and so unlocked, when it is collected.
	lock, err := syscall.Open(filepath.Join(s.Dir, lockFile), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o640)
	if err != nil {
		return fmt.Errorf("state directory %s: lock: %w", s.Dir, err)
	}
	if err := syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("state directory %s: another control plane%s keeps its plans there: end that one, or give this one another --state (%w)",
			s.Dir, holder(lock), err), syscall.Close(lock))
	}
	// Who has it is for people alone: the lock itself the kernel frees with the process.
	if err := syscall.Ftruncate(lock, 0); err == nil {
		_, _ = syscall.Pwrite(lock, []byte(strconv.Itoa(os.Getpid())), 0)
	}
	return nil
}

// holder names the process that has a lock, as far as it is known.
func holder(lock int) string {
	text := make([]byte, 20)
	n, err := syscall.Pread(lock, text, 0)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(string(text[:n]))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// Read reads what was saved last and changes nothing. Where nothing was, the error is
// [fs.ErrNotExist].
func (s Store) Read() (*Saved, error) { return readSaved(filepath.Join(s.Dir, storeFile)) }

// Load reads what was saved last, for the process that will save next. A file that
// cannot be used is set aside, not lost, under the name that the error tells.
func (s Store) Load() (*Saved, error) {
	saved, err := s.Read()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return saved, err
	}
	return nil, s.setAside(storeFile, "last plan", err)
}

// LoadOrders reads the orders that were saved last, likewise.
func (s Store) LoadOrders() (*Orders, error) {
	orders, err := s.ReadOrders()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return orders, err
	}
	return nil, s.setAside(ordersFile, "operators' orders", err)
}

// Histories are what pools showed at their loads.
type Histories map[fleet.PoolID][]fleet.Span

// LoadHistories reads the histories that were saved last, likewise.
func (s Store) LoadHistories() (Histories, error) {
	all, err := s.ReadHistories()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return all, err
	}
	return nil, s.setAside(historyFile, "pools' histories", err)
}

// ReadHistories reads them and changes nothing.
func (s Store) ReadHistories() (Histories, error) {
	e, err := readEnvelope(filepath.Join(s.Dir, historyFile))
	if err != nil {
		return nil, err
	}
	all := Histories{}
	return all, e.open(&all)
}

// ReadOrders reads them and changes nothing. Whether they make sense [New] sees.
func (s Store) ReadOrders() (*Orders, error) {
	e, err := readEnvelope(filepath.Join(s.Dir, ordersFile))
	if err != nil {
		return nil, err
	}
	orders := &Orders{}
	if err := e.open(orders); err != nil {
		return nil, err
	}
	return orders, nil
}

// setAside renames a file that cannot be used, and says where it is.
func (s Store) setAside(file, what string, why error) error {
	path := filepath.Join(s.Dir, file)
	aside := path + refused + time.Now().UTC().Format(".20060102T150405.000")
	if moved := os.Rename(path, aside); moved != nil {
		return fmt.Errorf("%s in %s: %w (it stays there: %w)", what, path, why, moved)
	}
	return fmt.Errorf("%s, now in %s: %w", what, aside, why)
}

func readSaved(path string) (*Saved, error) {
	e, err := readEnvelope(path)
	if err != nil {
		return nil, err
	}
	saved := &Saved{}
	if err := e.open(saved); err != nil {
		return nil, err
	}
	if saved.Plan == nil {
		return nil, errors.New("corrupt: it holds no plan")
	}
	return saved, sound(saved.Plan)
}

func readEnvelope(path string) (*envelope, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size() > maxStoreSize {
		return nil, fmt.Errorf("a file of %d bytes is none of ours", info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e := &envelope{}
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("corrupt: %w", err)
	}
	return e, nil
}

// open reads what is in the envelope into a value.
func (e *envelope) open(into any) error {
	if e.Format != storeFormat {
		return fmt.Errorf("format %d, this Weir reads %d: another version wrote it", e.Format, storeFormat)
	}
	if sum(e.Saved) != e.Sum {
		return errors.New("corrupt: the content does not match its checksum")
	}
	if err := json.Unmarshal(e.Saved, into); err != nil {
		return fmt.Errorf("corrupt: %w", err)
	}
	return nil
}

func sum(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:])
}

// Save replaces what was saved last, in one step: a crash leaves the old file or
// the new one.
func (s Store) Save(saved Saved) error {
	if err := s.seal(storeFile, saved); err != nil {
		return fmt.Errorf("save plan: %w", err)
	}
	return nil
}

// SaveOrders replaces the orders that were saved last, likewise.
func (s Store) SaveOrders(o *Orders) error {
	if err := s.seal(ordersFile, o); err != nil {
		return fmt.Errorf("save orders: %w", err)
	}
	return nil
}

// SaveHistories replaces the histories that were saved last, likewise.
func (s Store) SaveHistories(all Histories) error {
	if err := s.seal(historyFile, all); err != nil {
		return fmt.Errorf("save histories: %w", err)
	}
	return nil
}

// seal writes a value as a file in an envelope.
func (s Store) seal(file string, value any) error {
	inner, err := json.Marshal(value)
	if err != nil {
		return err
	}
	text, err := json.Marshal(envelope{storeFormat, sum(inner), inner})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o750); err != nil {
		return err
	}
	return replace(filepath.Join(s.Dir, file), text)
}

// replace writes a file so that it is there whole or not at all. What a crash
// leaves half written has one name, so that it is overwritten and never piles up.
func replace(path string, text []byte) error {
	half := path + ".new"
	if err := writeFile(half, text); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	if err := os.Rename(half, path); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return syncDir(filepath.Dir(path))
}

func writeFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// unaged is a plan without the ages of its shares: they are no reason to write it.
func unaged(p *fleet.Plan) *fleet.Plan {
	young := *p
	young.Routes = slices.Clone(p.Routes)
	for i := range young.Routes {
		young.Routes[i].SettledSeconds = 0
	}
	return &young
}

// same says whether saving b after a would change nothing but the time.
func (a *Saved) same(b *Saved) bool {
	if a == nil || a.Fleet != b.Fleet || !maps.EqualFunc(a.Engines, b.Engines, slices.Equal) {
		return false
	}
	before, errBefore := json.Marshal(unaged(a.Plan))
	after, errAfter := json.Marshal(unaged(b.Plan))
	return errors.Join(errBefore, errAfter) == nil && bytes.Equal(before, after)
}

// same says whether saving b after a would change nothing.
func (a *Orders) same(b *Orders) bool {
	if a == nil {
		return false
	}
	before, errBefore := json.Marshal(a)
	after, errAfter := json.Marshal(b)
	return errors.Join(errBefore, errAfter) == nil && bytes.Equal(before, after)
}
