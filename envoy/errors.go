package envoy

import "encoding/json"

// The bodies of refusals that Envoy gives by itself and that weir-extproc has it
// give. A client reads the same whichever of the two spoke.

// Unreadable answers a request whose model cannot be read; detail says why, or
// what to send.
func Unreadable(detail string) []byte {
	return apiError("the request names no model that can be read: "+detail, "invalid_request_error", "model_unreadable")
}

// UnknownModel answers a request for a model that no class serves; what says so.
func UnknownModel(what string) []byte {
	return apiError(what+": GET /v1/models lists the models", "invalid_request_error", "model_not_found")
}

// NoEngine answers a request of a class that no engine serves.
func NoEngine() []byte {
	return apiError("no engine serves this class of requests at the moment", "server_error", "no_engine")
}

// NoAlias answers a request for an alias of a model while nobody can put the model's
// own name in its place.
func NoAlias() []byte {
	return apiError("this name of a model cannot be resolved at the moment: retry, or use the model's own name", "server_error", "alias_unresolved")
}

// Overloaded answers a request that is shed.
func Overloaded() []byte {
	return apiError("capacity is short: retry later", "rate_limit_error", "overloaded")
}

// Limited answers a request that is shed for an operator's limit.
func Limited() []byte {
	return apiError("the rate of this class of requests is limited for now: retry later", "rate_limit_error", "overloaded")
}

// tooLarge words the refusal of a body larger than the limit.
const tooLarge, tooLargeCode = "the request is larger than this front-end takes", "request_too_large"

// TooLarge answers a request whose body is larger than the limit.
func TooLarge() []byte { return apiError(tooLarge, "invalid_request_error", tooLargeCode) }

// Busy answers a request for whose body there is no room.
func Busy() []byte {
	return apiError("this front-end is reading as many request bodies as it can: retry", "server_error", "front_end_busy")
}

// apiError is an error body in the shape that OpenAI's clients read and, by the type
// beside it, Anthropic's.
func apiError(message, kind, code string) []byte {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	body, err := json.Marshal(struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{Message: message, Type: kind, Code: code}})
	if err != nil {
		panic("envoy: " + err.Error()) // strings always marshal
	}
	return body
}
