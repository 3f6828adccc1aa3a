package config

import (
	"os"
	"testing"
)

// A mark of UTF-8 that an editor put before the text is no part of it.
func TestByteOrderMark(t *testing.T) {
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("marked", append([]byte("\ufeff"), text...)); err != nil {
		t.Error(err)
	}
}
