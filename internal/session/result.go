package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	// maxResult is what the kubelet takes of a termination message.
	maxResult    = 4096
	maxSessionID = 256
	// maxCost is more than any session costs, and small enough to be summed without loss.
	maxCost = 1e9
	// micros are the millionths of a dollar that costs are counted in.
	micros = 1e6
)

// readResult keeps what the runner left, if it has ended. What cannot be read is said in a
// condition, and changes no outcome.
func (d *decision) readResult() {
	exit := d.exit()
	if exit == nil || strings.TrimSpace(exit.Message) == "" {
		return
	}
	result, err := ParseResult(exit.Message)
	if err != nil {
		d.set(v1alpha1.ConditionResultValid, metav1.ConditionFalse, v1alpha1.ReasonResultMalformed, "attempt %d at run %d: %s",
			d.status.Attempt, d.status.Run, err)
		return
	}
	d.set(v1alpha1.ConditionResultValid, metav1.ConditionTrue, v1alpha1.ReasonResultRead, "")
	result.Run, result.Attempt = d.status.Run, d.status.Attempt
	d.status.Result = result
	if result.SDKSessionID != "" {
		d.status.SDKSessionID = result.SDKSessionID
	}
}

// ParseResult reads what a runner leaves: one JSON object. Fields that are not known are
// left out: a runner may have more to say than this version can hear.
func ParseResult(message string) (*v1alpha1.SessionResult, error) {
	if len(message) > maxResult {
		return nil, fmt.Errorf("the result has %d bytes, which is more than %d", len(message), maxResult)
	}
	var raw struct {
		Summary      string          `json:"summary"`
		Usage        json.RawMessage `json:"usage"`
		CostUSD      *json.Number    `json:"costUSD"`
		SDKSessionID string          `json:"sdkSessionId"` //nolint:tagliatelle // The name that is known.
	}
	decoder := json.NewDecoder(strings.NewReader(message))
	if err := decoder.Decode(&raw); err != nil {
		if len(message) == maxResult {
			return nil, fmt.Errorf("the result is cut off at %d bytes: %w", maxResult, err)
		}
		return nil, fmt.Errorf("the result is no JSON object of the known form: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the result's JSON object")
	}
	result := &v1alpha1.SessionResult{Summary: raw.Summary, SDKSessionID: raw.SDKSessionID}
	if utf8.RuneCountInString(result.SDKSessionID) > maxSessionID {
		return nil, fmt.Errorf("sdkSessionId has more than %d characters", maxSessionID)
	}
	if usage := bytes.TrimSpace(raw.Usage); len(usage) > 0 && !bytes.Equal(usage, []byte("null")) {
		if usage[0] != '{' {
			return nil, errors.New("usage is no JSON object")
		}
		result.Usage = &apiextensionsv1.JSON{Raw: usage}
	}
	if raw.CostUSD != nil {
		cost, err := parseCost(raw.CostUSD.String())
		if err != nil {
			return nil, err
		}
		result.CostUSD = &cost
	}
	return result, nil
}

// parseCost takes a number of dollars, and rounds it to millionths.
func parseCost(text string) (v1alpha1.Number, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(cost) || cost < 0 || cost > maxCost {
		return "", fmt.Errorf("costUSD is %s, and must be from 0 to %.0f", text, float64(maxCost))
	}
	return dollars(int64(math.Round(cost * micros))), nil
}

// sum of costs, of which each may be unknown.
func sum(a, b *v1alpha1.Number) *v1alpha1.Number {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(dollars(inMicros(*a) + inMicros(*b)))
}

// inMicros is the inverse of dollars. Whoever edits a status gets 0 for what is no cost.
func inMicros(n v1alpha1.Number) int64 {
	cost, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.IsNaN(cost) || math.Abs(cost) > math.MaxInt64/micros/2 {
		return 0
	}
	return int64(math.Round(cost * micros))
}

func dollars(amount int64) v1alpha1.Number {
	text := fmt.Sprintf("%d.%06d", amount/micros, amount%micros)
	return v1alpha1.Number(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}
