package main

import (
	"encoding/json"
	"net/http"
)

// apiError is an answer in the form of OpenAI's errors.
type apiError struct {
	status  int
	message string
	code    string
}

func badRequest(message string) *apiError {
	return &apiError{http.StatusBadRequest, message, "invalid_request"}
}

func writeError(w http.ResponseWriter, e *apiError) {
	kind := "invalid_request_error"
	if e.status >= 500 {
		kind = "server_error"
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": kind, "param": nil, "code": e.code,
	}})
}

// writeJSON has nobody to tell of a failure: the client is gone then.
func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
