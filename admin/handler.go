package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/fleet"
)

// Page is the answer to one path: a value to write as JSON, or why there is none
// at the moment.
type Page func() (any, error)

// Query is the answer to one path and what is asked of it, and refuses what it does not
// know. It may take long, and one is reckoned at a time.
type Query func(url.Values) (any, error)

// ErrQuery is what a query's error wraps that is the asker's own mistake.
var ErrQuery = errors.New("not possible")

// Options are what a process can be asked. Metrics and Ready are needed.
type Options struct {
	Pages   map[string]Page     // by path, beside /healthz, /readyz and /metrics
	Queries map[string]Query    // by path
	Actions map[string]Action   // by path, each that of a page
	Ready   func() error        // nil: the process can do its work
	Metrics prometheus.Gatherer // of /metrics
}

// Handler answers GET requests for the paths that it was given, and POST requests for
// those of actions. All errors are JSON.
func Handler(o Options) http.Handler {
	pages := maps.Clone(o.Pages)
	if pages == nil {
		pages = map[string]Page{}
	}
	pages["/healthz"] = func() (any, error) { return health{"alive"}, nil }
	pages["/readyz"] = func() (any, error) { return health{"ready"}, o.Ready() }
	metrics := promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 2})
	paths := strings.Join(slices.Sorted(maps.Keys(pages)), ", ") + ", /metrics"
	if len(o.Queries) > 0 {
		paths = strings.Join(slices.Sorted(maps.Keys(o.Queries)), ", ") + ", " + paths
	}
	reckoning := make(chan struct{}, 1)
	return limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Path]
		if query := o.Queries[r.URL.Path]; query != nil {
			page = alone(reckoning, func() (any, error) { return query(r.URL.Query()) })
		} else if err := CheckKeys(r.URL.RawQuery); o.Pages[r.URL.Path] != nil && err != nil {
			page = func() (any, error) { return nil, err }
		}
		action := o.Actions[r.URL.Path]
		switch {
		case r.Method == http.MethodPost && action != nil:
			act(w, r, action)
		case r.Method != http.MethodGet:
			refuseMethod(w, r, action != nil)
		case r.URL.Path == "/metrics":
			metrics.ServeHTTP(w, r)
		case page == nil:
			refuse(w, http.StatusNotFound, fmt.Errorf("there is no %.100q: ask for one of %s", r.URL.Path, paths))
		default:
			answer(w, page)
		}
	}), "/healthz", "/readyz")
}

// CheckKeys refuses a query with a key that is not one of these: a misspelt one would
// change what is answered, and nobody would see it. The error wraps [ErrQuery].
func CheckKeys(query string, known ...string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: the query cannot be read: %w", ErrQuery, err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch {
		case slices.Contains(known, key):
		case len(known) == 0:
			return fmt.Errorf("%w: unknown %.100q in the query: nothing can be asked here", ErrQuery, key)
		default:
			return fmt.Errorf("%w: unknown %.100q in the query: ask by %s", ErrQuery, key, strings.Join(known, ", "))
		}
	}
	return nil
}

func refuseMethod(w http.ResponseWriter, r *http.Request, acts bool) {
	allow, how := http.MethodGet, "this only reads, by GET"
	if acts {
		allow, how = http.MethodGet+", "+http.MethodPost, "read by GET, change by POST"
	}
	w.Header().Set("Allow", allow)
	refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%.20s is not possible here: %s", r.Method, how))
}

var errReckoning = errors.New("another question is being reckoned: ask again in some seconds")

// alone lets one page be reckoned at a time: more would take the processor from what
// the process is there for.
func alone(slot chan struct{}, page Page) Page {
	return func() (any, error) {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
			return page()
		default:
			return nil, errReckoning
		}
	}
}

type health struct {
	Status string `json:"status"`
}

// limited answers few requests at a time, and always those for the given paths: a process
// must not be taken for dead because others read slowly.
func limited(next http.Handler, always ...string) http.Handler {
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(always, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			refuse(w, http.StatusServiceUnavailable, errors.New("too many requests at once: ask again"))
		}
	})
}

func answer(w http.ResponseWriter, page Page) {
	value, err := page()
	switch {
	case errors.Is(err, ErrQuery), errors.Is(err, fleet.ErrBrake):
		refuse(w, http.StatusBadRequest, err)
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err)
		return
	}
	text, err := json.MarshalIndent(value, "", "  ")
	switch {
	case err != nil:
		refuse(w, http.StatusInternalServerError, err)
	case len(text) > maxResponse:
		refuse(w, http.StatusInternalServerError, fmt.Errorf("the answer has %d bytes, more than the %d that are allowed", len(text), maxResponse))
	default:
		write(w, http.StatusOK, text)
	}
}

// failure is the form of every error.
type failure struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, status int, why error) {
	text, err := json.Marshal(failure{why.Error()})
	if err != nil {
		text = []byte(`{"error":"an error that cannot be written"}`)
	}
	write(w, status, text)
}

func write(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // who asked is gone
}
