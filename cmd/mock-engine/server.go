package main

import (
	"fmt"
	"net/http"
)

func (e *engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.serve(chat{}))
	mux.HandleFunc("POST /v1/completions", e.serve(completions{}))
	mux.HandleFunc("POST /v1/responses", e.serve(responses{}))
	for _, stored := range []string{"GET /v1/responses/{id}", "GET /v1/responses/{id}/input_items", "POST /v1/responses/{id}/cancel", "DELETE /v1/responses/{id}"} {
		mux.HandleFunc(stored, e.serveStored)
	}
	mux.HandleFunc("POST /v1/embeddings", e.serve(embeddings{}))
	mux.HandleFunc("POST /v1/messages", e.serve(messages{}))
	mux.HandleFunc("GET /v1/models", e.serveModels)
	mux.HandleFunc("GET /health", e.serveHealth)
	mux.HandleFunc("GET /metrics", e.serveMetrics)
	mux.HandleFunc("GET /faults", e.serveFaults)
	mux.HandleFunc("PUT /faults", e.putFaults)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		message := fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path)
		writeError(w, &apiError{http.StatusNotFound, message, "not_found"})
	})
	return e.distant(e.sick(mux))
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
