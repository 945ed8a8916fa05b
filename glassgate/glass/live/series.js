const seriesModel = () => ({ kind: "series" });
