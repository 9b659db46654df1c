package validation

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestUsersApproveOnlyInTheirOwnName(t *testing.T) {
	for name, test := range map[string]struct{ stored, approval, want string }{
		"in one's own name":       {approval: `{"run":1,"step":"test","by":"ada"}`},
		"in another's name":       {approval: `{"run":1,"step":"test","by":"grace"}`, want: `user "ada" cannot approve step "test" as "grace"`},
		"without a name":          {approval: `{"run":1,"step":"test"}`, want: "must be JSON"},
		"not JSON":                {approval: `yes`, want: "must be JSON"},
		"an unchanged annotation": {stored: `{"run":1,"step":"test","by":"grace"}`, approval: `{"run":1,"step":"test","by":"grace"}`},
		"a removed annotation":    {stored: `{"run":1,"step":"test","by":"grace"}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := started(twoSteps())
			after := before.DeepCopy()
			before.Annotations = map[string]string{v1alpha1.AnnotationApproval: test.stored}
			after.Annotations = map[string]string{v1alpha1.AnnotationApproval: test.approval}
			ctx := byUser(t, authenticationv1.UserInfo{Username: "ada"})
			if _, err := testSequentialJobValidator(t).ValidateUpdate(ctx, before, after); errorText(err) != "" != (test.want != "") || !strings.Contains(errorText(err), test.want) {
				t.Errorf("update: error %v, want %q", err, test.want)
			}
			if test.stored != "" {
				return
			}
			if _, err := testSequentialJobValidator(t).ValidateCreate(ctx, after); !strings.Contains(errorText(err), test.want) {
				t.Errorf("creation: error %v, want %q", err, test.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
