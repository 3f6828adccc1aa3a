package weir_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The map of docs/ARCHITECTURE.md has every room and no other, and the files that it
// says to start at are there.
func TestTheMapIsTrue(t *testing.T) {
	text := readFile(t, "docs/ARCHITECTURE.md")
	var want, got []string
	for name := range rooms {
		if name != "." {
			want = append(want, name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/-]+)` \\|").FindAllStringSubmatch(section(text, "The rooms"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/ARCHITECTURE.md has the rooms\n%v\nand there are\n%v", got, want)
	}
	for row := range strings.Lines(section(text, "Where do I change …")) {
		for _, missing := range missingPaths(row) {
			t.Errorf("docs/ARCHITECTURE.md names %q, which is not there: %s", missing, row)
		}
	}
}

// missingPaths are the code spans of a row that are no path, neither from the root nor
// in a folder that the row names.
func missingPaths(row string) []string {
	var spans []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1) {
		if !strings.Contains(m[1], " ") { // a command
			spans = append(spans, m[1])
		}
	}
	return slices.DeleteFunc(slices.Clone(spans), func(name string) bool {
		return slices.ContainsFunc(append(spans, "."), func(folder string) bool {
			found, err := filepath.Glob(path.Join(folder, name))
			return err == nil && len(found) > 0
		})
	})
}

func section(text, heading string) string {
	_, text, _ = strings.Cut(text, "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// Links between pages lead somewhere, to their headings too.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	links := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(withoutCode(readFile(t, page)), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: a link to %s leads nowhere", page, m[1])
			} else if anchor != "" && !slices.Contains(anchors(readFile(t, target)), anchor) {
				t.Errorf("%s: %s has no heading %s", page, target, anchor)
			}
		}
	}
	if links < 80 {
		t.Errorf("found %d links only", links)
	}
}

// pages are the repository's Markdown files.
func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return fs.SkipDir
		}
		if err == nil && path.Ext(name) == ".md" {
			all = append(all, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors are the names by which a page's headings are linked to.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

var fenced = regexp.MustCompile("(?ms)^```.*?^```$")

func withoutCode(text string) string { return fenced.ReplaceAllString(text, "") }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
