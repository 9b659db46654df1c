package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestTheReferenceHasAPageForEachKindWithAnExample(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/reference/api/*.md")
	require.True(t, err == nil && len(pages) == len(definitions(t))+1, "pages %v: %v", pages, err)
	for _, path := range pages {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		page, name := string(raw), strings.TrimSuffix(filepath.Base(path), ".md")
		if name == "README" {
			continue
		}
		if name != "jobreport" && !strings.Contains(page, "\n```yaml\napiVersion:") { // the operator writes JobReports
			t.Errorf("%s has no example", name)
		}
	}
}
