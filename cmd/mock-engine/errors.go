package main

import (
	"encoding/json"
	"net/http"
)

// apiError is what a client is told instead of an answer.
type apiError struct {
	status  int
	message string
	code    string
}

func badRequest(message string) *apiError {
	return &apiError{http.StatusBadRequest, message, "invalid_request"}
}

// writeError writes an error where the path names no API.
func writeError(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.status, openAI{}.refusal(e))
}

// writeJSON has nobody to tell of a failure: the client is gone then.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
