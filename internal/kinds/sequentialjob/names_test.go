package sequentialjob

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// Pods cannot be created for names that are too long.
func TestLongNamesAreTruncatedToValidNamesAndLabels(t *testing.T) {
	for title, owner := range map[string]string{
		"short":                             "a",
		"maximum length":                    strings.Repeat("a", 253),
		"with dots":                         "my.app.example",
		"a dash at the truncation":          "abcdefghi-klm",
		"only dashes before the truncation": "a---------------------------------------------------b",
		"a dot at the end of the label":     strings.Repeat("a", 62) + ".b",
		"several at the end of the label":   strings.Repeat("a", 60) + "-.-b",
	} {
		sj := testbuilder.SequentialJob(owner, "ns").Obj()
		names := map[string]string{"archive": archiveJobName(sj, 1<<30)}
		for _, step := range []string{"a", strings.Repeat("s", 30), "a-b"} {
			names[step] = jobName(sj, 1, step, 1)
		}
		errs := validation.IsValidLabelValue(childLabels(sj, "outputs")[v1alpha1.LabelSequentialJob])
		for part, name := range names {
			errs = append(errs, validation.IsDNS1123Label(name+"-99999")...) // of an Indexed Job's Pod
			require.True(t, len(errs) == 0 && strings.Contains(name, "-"+part+"-"),
				"%s: %q is no host name, or does not name %q: %v", title, name, part, errs)
		}
	}
}

func TestJobNamesDependOnRunStepAndAttempt(t *testing.T) {
	sj, recreated := sequence().Obj(), sequence().Obj()
	recreated.UID = types.UID("another")
	names := map[string]string{
		"the first attempt":                        jobName(sj, 1, "build", 1),
		"another run":                              jobName(sj, 2, "build", 1),
		"another attempt":                          jobName(sj, 1, "build", 2),
		"another step":                             jobName(sj, 1, "test", 1),
		"a recreated SequentialJob":                jobName(recreated, 1, "build", 1),
		"a step name that looks like a run number": jobName(sj, 1, "1-build", 1),
		"a long name":                              jobName(testbuilder.SequentialJob(strings.Repeat("a", 100)+"1", "ns").Obj(), 1, "build", 1),
		"another long name":                        jobName(testbuilder.SequentialJob(strings.Repeat("a", 100)+"2", "ns").Obj(), 1, "build", 1),
		"the workspace":                            WorkspaceName(sj),
		"the outputs":                              OutputsName(sj),
		"a step with the name of the workspace":    jobName(sj, 1, "workspace", 1),
		"a step with the name of the outputs":      jobName(sj, 1, "outputs", 1),
		"an archive":                               archiveJobName(sj, 1),
		"the archive of another run":               archiveJobName(sj, 1<<30),
	}
	seen := map[string]string{}
	for title, name := range names {
		other, found := seen[name]
		require.True(t, !found, "%s and %s have the name %s", title, other, name)
		seen[name] = title
	}
	again := jobName(sj, 1, "build", 1)
	require.True(t, again == names["the first attempt"], "the same attempt is named %s, then %s", names["the first attempt"], again)
}
