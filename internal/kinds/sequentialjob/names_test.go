package sequentialjob

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// Pods cannot be created for names that are too long.
func TestLongNamesAreTruncatedToValidNames(t *testing.T) {
	owners := map[string]string{
		"short":                             "a",
		"maximum length":                    strings.Repeat("a", 253),
		"with dots":                         "my.app.example",
		"a dash at the truncation":          "abcdefghi-klm",
		"only dashes before the truncation": "a---------------------------------------------------b",
	}
	steps := []string{"a", strings.Repeat("s", 30), "a-b"}
	for title, owner := range owners {
		t.Run(title, func(t *testing.T) {
			if name := archiveJobName(testbuilder.SequentialJob(owner, "ns").Obj(), 1<<30); len(validation.IsDNS1123Label(name+"-99999")) > 0 {
				t.Errorf("name %q", name)
			}
			for _, step := range steps {
				name := jobName(testbuilder.SequentialJob(owner, "ns").Obj(), 1, step, 1)
				hostname := name + "-99999" // of an Indexed Job's Pod
				if errs := validation.IsDNS1123Label(hostname); len(errs) > 0 {
					t.Errorf("%q is not a host name: %v", hostname, errs)
				}
				if !strings.Contains(name, "-"+step+"-") {
					t.Errorf("%q does not name step %q", name, step)
				}
			}
		})
	}
}

func TestJobNamesDependOnRunStepAndAttempt(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Obj()
	recreated := testbuilder.SequentialJob("a", "ns").Obj()
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
		if other, found := seen[name]; found {
			t.Errorf("%s and %s have the name %s", title, other, name)
		}
		seen[name] = title
	}
	if again := jobName(sj, 1, "build", 1); again != names["the first attempt"] {
		t.Errorf("the same attempt is named %s, then %s", names["the first attempt"], again)
	}
}

func TestLabelValuesAreValid(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 62) + ".b", strings.Repeat("a", 60) + "-.-b"} {
		sj := testbuilder.SequentialJob(name, "ns").Obj()
		value := childLabels(sj, "outputs")[v1alpha1.LabelSequentialJob]
		if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
			t.Errorf("%q: %v", value, errs)
		}
	}
}
