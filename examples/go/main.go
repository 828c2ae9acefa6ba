// Tides answers with the height of the water at a time of the day.
package main

import (
	"encoding/json"
	"log"
	"math"
	"net/http"
	"os"
	"time"
)

type tide struct {
	At     time.Time `json:"at"`
	Metres float64   `json:"metres"`
}

// metres is a tide of 12 hours and 25 minutes between 0 and 4 metres.
func metres(at time.Time) float64 {
	period := (12*time.Hour + 25*time.Minute).Seconds()
	height := 2 + 2*math.Sin(2*math.Pi*math.Mod(float64(at.Unix()), period)/period)
	return math.Round(height*100) / 100
}

func main() {
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		now := time.Now().UTC()
		response.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(response).Encode(tide{now, metres(now)}); err != nil {
			log.Print(err)
		}
	})
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
