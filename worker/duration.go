package worker

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that is written as text in YAML and JSON, such as 30s or
// 1m30s.
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return fmt.Errorf("%s is not a duration such as 30s", raw)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// String implements fmt.Stringer.
func (d Duration) String() string { return time.Duration(d).String() }
