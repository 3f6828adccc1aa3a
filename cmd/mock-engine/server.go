package main

import (
	"fmt"
	"net/http"
)

func (e *engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.complete(true))
	mux.HandleFunc("POST /v1/completions", e.complete(false))
	mux.HandleFunc("GET /v1/models", e.serveModels)
	mux.HandleFunc("GET /health", e.serveHealth)
	mux.HandleFunc("GET /metrics", e.serveMetrics)
	mux.HandleFunc("PUT /faults", e.putFaults)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		message := fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)
		writeError(w, &apiError{http.StatusNotFound, message, "not_found"})
	})
	return mux
}

func (e *engine) serveHealth(w http.ResponseWriter, _ *http.Request) {
	if e.draining.Load() || e.faults.Load().Unhealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (e *engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
		Owner  string `json:"owned_by"`
	}
	list := []model{}
	for _, name := range e.models {
		list = append(list, model{name, "model", "mock-engine"})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}
