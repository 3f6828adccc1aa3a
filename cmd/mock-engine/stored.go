package main

import "net/http"

// serveStored answers for a response that is kept here, to be shown, cancelled or
// deleted: an engine knows its own ones alone.
func (e *engine) serveStored(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !e.stored(id, r.Method == http.MethodDelete) {
		writeError(w, &apiError{http.StatusNotFound, "there is no response " + id, "not_found"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": r.Method == http.MethodDelete})
}

// stored says whether a response is kept, and forgets it if that is asked.
func (e *engine) stored(id string, forget bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.history.get(id)
	if forget {
		e.history.remove(id)
	}
	return ok
}
