package jobreport

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

var (
	sampleTitle = regexp.MustCompile(`^# (\w+): `)
	sampleLine  = regexp.MustCompile(`(?m)^# At (\S+): (\w+)$`)
)

// The Jobs in the documentation have the classification that it states.
func TestSamples(t *testing.T) {
	paths, err := filepath.Glob("../../../docs/samples/jobreport/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var shown []Reason
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			job := &batchv1.Job{}
			if err := yaml.UnmarshalStrict(raw, job); err != nil {
				t.Fatal(err)
			}
			first, times := sampleTitle.FindSubmatch(raw), sampleLine.FindAllSubmatch(raw, -1)
			if first == nil || len(times) == 0 {
				t.Fatal("the file does not state its reason and times")
			}
			reason := Reason(first[1])
			shown = append(shown, reason)
			for _, match := range times {
				at, err := time.Parse(time.RFC3339, string(match[1]))
				if err != nil {
					t.Fatal(err)
				}
				got := Classify(job, at, DefaultThresholds())
				want := Finding{Category: Category(match[2])}
				if want.Category != CategoryHealthy {
					want.Reason = reason
				}
				if got.Category != want.Category || got.Reason != want.Reason {
					t.Errorf("at %s: got %s %s, want %s %s", match[1], got.Category, got.Reason, want.Category, want.Reason)
				}
			}
		})
	}
	if want := AllReasons(); !slices.Equal(shown, want) {
		t.Errorf("there are samples for %v, want %v", shown, want)
	}
}
