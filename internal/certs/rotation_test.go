package certs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

func TestOnlyConfigurationsOfWebhooksThatAreServedAreGivenTheCA(t *testing.T) {
	validating := rotator.WebhookInfo{Name: "yardmaster", Type: rotator.Validating}
	mutating := rotator.WebhookInfo{Name: "yardmaster", Type: rotator.Mutating}
	for name, row := range map[string]struct {
		rotation Rotation
		want     []rotator.WebhookInfo
	}{
		"none changes objects": {Rotation{Webhooks: "yardmaster"}, []rotator.WebhookInfo{validating}},
		"one changes objects":  {Rotation{Webhooks: "yardmaster", Mutating: true}, []rotator.WebhookInfo{validating, mutating}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, row.rotation.configurations()); diff != "" {
				t.Errorf("configurations (-want +got):\n%s", diff)
			}
		})
	}
}
