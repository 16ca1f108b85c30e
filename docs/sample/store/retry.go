package store

import (
	"errors"
	"time"
)

// ErrGaveUp is returned when every attempt has failed.
var ErrGaveUp = errors.New("gave up")

// Retry calls a function until it succeeds, waiting twice as long after each failure.
func Retry(attempts int, wait time.Duration, call func() error) error {
	for i := 0; i < attempts; i++ {
		if call() == nil {
			return nil
		}
		time.Sleep(wait)
		wait *= 2
	}
	return ErrGaveUp
}
