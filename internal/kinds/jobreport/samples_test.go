package jobreport

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

var (
	sampleTitle = regexp.MustCompile(`(?m)^# (\w+): `)
	sampleLine  = regexp.MustCompile(`(?m)^# At (\S+): (\w+)$`)
)

// sample is a Job in the documentation, and the categories that its file states.
type sample struct {
	reason     Reason
	job        *batchv1.Job
	categories [][2]string // by time
}

// readSamples returns the samples in the order of their files.
func readSamples(t testing.TB) []sample {
	t.Helper()
	paths, err := filepath.Glob("../../../docs/samples/jobreport/*.yaml")
	require.NoError(t, err)
	var samples []sample
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		s := sample{job: &batchv1.Job{}}
		require.NoError(t, yaml.UnmarshalStrict(raw, s.job))
		for _, match := range sampleLine.FindAllSubmatch(raw, -1) {
			s.categories = append(s.categories, [2]string{string(match[1]), string(match[2])})
		}
		title := sampleTitle.FindSubmatch(raw)
		require.True(t, title != nil && len(s.categories) != 0, "%s does not state its reason and times", path)
		s.reason = Reason(title[1])
		samples = append(samples, s)
	}
	return samples
}

// The Jobs in the documentation have the classification that it states: each side of each threshold.
func TestSamples(t *testing.T) {
	var shown []Reason
	for _, sample := range readSamples(t) {
		shown = append(shown, sample.reason)
		t.Run(string(sample.reason), func(t *testing.T) {
			for _, stated := range sample.categories {
				at, err := time.Parse(time.RFC3339, stated[0])
				require.NoError(t, err)
				got := Classify(sample.job, at, DefaultThresholds())
				want := Finding{Category: Category(stated[1])}
				if want.Category != CategoryHealthy {
					want.Reason = sample.reason
				}
				require.True(t, got.Category == want.Category && got.Reason == want.Reason,
					"at %s: got %s %s, want %s %s", at, got.Category, got.Reason, want.Category, want.Reason)
			}
		})
	}
	require.Equal(t, AllReasons(), shown)
}
